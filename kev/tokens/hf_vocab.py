"""The vocabulary of a Hugging Face directory: tokenizer.json and the small files beside it."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from kev.tokens.vocabulary import (
    TokenizerError,
    Vocabulary,
    byte_alphabet,
    byte_level_piece,
    digest_of,
    end_ids,
    spaced_piece,
)


def load_directory(folder: Path) -> Vocabulary:
    """Read the vocabulary of a Hugging Face directory. Nothing in it is executed.

    Raises:
        TokenizerError: tokenizer.json is missing, damaged, or not a BPE tokenizer.
    """
    spec = _json(folder / "tokenizer.json", required=True)
    config = _json(folder / "tokenizer_config.json")
    kind = (spec.get("model") or {}).get("type")
    if kind != "BPE":
        raise TokenizerError(f"{folder.name}/tokenizer.json: model.type is {kind!r}; allowed: BPE")
    added = {str(token["content"]): token for token in spec.get("added_tokens") or []}
    special = {text: int(token["id"]) for text, token in added.items() if not text.isspace()}
    unknown = spec["model"].get("unk_token")
    special.pop(unknown, None)
    first, inner = _backends(spec, set(special))
    template = _template(folder, config)
    bos = _token_text(config, "bos_token")
    return Vocabulary(
        backend=first,
        backend_inner=inner,
        pieces=_pieces(spec, added, unknown),
        special=special,
        bos_id=special.get(bos) if bos else None,
        eos_ids=end_ids(special, _named_ends(folder, config, special)),
        adds_bos=bool(config.get("add_bos_token", _puts_first(spec, bos))),
        chat_template=template,
        digest=digest_of(spec, template, bos),
    )


def _json(path: Path, required: bool = False) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise TokenizerError(f"{path.parent.name} has no {path.name}; a fast tokenizer file is needed")
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path.parent.name}/{path.name} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise TokenizerError(f"{path.parent.name}/{path.name} does not hold a JSON object")
    return found


def _backends(spec: dict[str, Any], special: set[str]) -> tuple[Backend, Backend]:
    """Encoders without any special token; the second one never puts a space in front."""
    model = dict(spec["model"])
    model["vocab"] = {piece: token for piece, token in model["vocab"].items() if piece not in special}
    keep = [token for token in spec.get("added_tokens") or [] if str(token["content"]).isspace()]
    plain = {**spec, "model": model, "added_tokens": keep, "post_processor": None, "truncation": None, "padding": None}
    pre = spec.get("pre_tokenizer") or {}
    try:
        first = Backend.from_str(json.dumps(plain))
        if pre.get("type") != "Metaspace" or pre.get("prepend_scheme") != "first":
            return first, first
        return first, Backend.from_str(json.dumps({**plain, "pre_tokenizer": {**pre, "prepend_scheme": "never"}}))
    except Exception as error:  # the library raises bare Exception for a bad file
        raise TokenizerError(f"tokenizer.json cannot be used: {error}") from error


def _pieces(spec: dict[str, Any], added: dict[str, dict[str, Any]], unknown: str | None) -> list[bytes]:
    """Bytes of every id: byte-level or sentencepiece-style, as the decoder says."""
    vocab: dict[str, int] = spec["model"]["vocab"]
    size = 1 + max([*vocab.values(), *(int(token["id"]) for token in added.values())])
    byte_level = '"ByteLevel"' in json.dumps([spec.get("pre_tokenizer"), spec.get("decoder")])
    alphabet = byte_alphabet()
    out = [b""] * size
    for piece, token in vocab.items():
        out[token] = byte_level_piece(piece, alphabet) if byte_level else spaced_piece(piece)
    for text, entry in added.items():
        out[int(entry["id"])] = b"" if entry.get("special") or text == unknown else text.encode()
    return out


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    found = config.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):  # several named templates: the one for plain chat
        found = next((item.get("template") for item in found if item.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _token_text(config: dict[str, Any], name: str) -> str | None:
    found = config.get(name)
    return found.get("content") if isinstance(found, dict) else found


def _named_ends(folder: Path, config: dict[str, Any], special: dict[str, int]) -> set[int]:
    named: set[int] = set()
    for file in ("generation_config.json", "config.json"):
        found = _json(folder / file).get("eos_token_id")
        named.update(found if isinstance(found, list) else [found] if isinstance(found, int) else [])
    eos = _token_text(config, "eos_token") or _token_text(_json(folder / "special_tokens_map.json"), "eos_token")
    return named | ({special[eos]} if eos in special else set())


def _puts_first(spec: dict[str, Any], bos: str | None) -> bool:
    """Whether the file's own post-processor begins every text with the begin-of-text token."""
    return bool(bos) and json.dumps(bos) in json.dumps(spec.get("post_processor"))
