"""A codebook: one centroid per bucket, fitted to a deployment's own questions and shipped to all its routers."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kev.config.source import ConfigError
from router_svc.semantic.table import Floats

KIND, VERSION = "kev-codebook", 1


class BadCodebook(ConfigError):
    """The file is no codebook, or none for these word vectors or this many buckets."""


@dataclass(frozen=True, eq=False)
class Codebook:
    """Where the buckets lie.

    Attributes:
        table: Digest of the word vectors it was fitted with.
        centre: What is subtracted from a question's vector first, float32 ``[dimensions]``.
        centroids: Unit vectors, float32 ``[buckets, dimensions]``.
        fitted_on: How many questions it was fitted on.
    """

    table: str
    centre: Floats
    centroids: Floats
    fitted_on: int

    def bucket(self, vector: Floats) -> int:
        """The bucket whose centroid is nearest to a question's vector ``[dimensions]``."""
        return int(np.argmax(self.centroids @ (vector - self.centre)))

    def save(self, path: str | Path) -> None:
        """Writes the file."""
        told = {
            "kind": KIND,
            "version": VERSION,
            "table": self.table,
            "buckets": len(self.centroids),
            "dimensions": len(self.centre),
            "fitted_on": self.fitted_on,
            "centre": _packed(self.centre),
            "centroids": _packed(self.centroids),
        }
        Path(path).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, *, table: str, buckets: int) -> Codebook:
        """Reads a file and checks that it fits.

        Args:
            table: Digest of the word vectors in use.
            buckets: ``router.hash_buckets``.

        Raises:
            BadCodebook: the text says what is wrong, and what to do.
        """
        told = _read(Path(path))
        if told["table"] != table:
            raise BadCodebook(
                f"{path}: was fitted with other word vectors ({told['table']}, here {table}); fit it anew"
            )
        if told["buckets"] != buckets:
            raise BadCodebook(
                f"{path}: has {told['buckets']} buckets, router.hash_buckets is {buckets}; make them equal"
            )
        shape = (told["buckets"], told["dimensions"])
        return cls(table, _unpacked(told["centre"]), _unpacked(told["centroids"]).reshape(shape), told["fitted_on"])


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadCodebook(f"router.codebook: {path} cannot be read ({error.strerror})") from None
    except ValueError:
        raise BadCodebook(f"router.codebook: {path} is no codebook (not JSON)") from None
    if not isinstance(told, dict) or told.get("kind") != KIND:
        raise BadCodebook(f"router.codebook: {path} is no codebook")
    if told.get("version") != VERSION:
        raise BadCodebook(
            f"router.codebook: {path} is a codebook of version {told.get('version')}; this router reads {VERSION}"
        )
    if missing := {"table", "buckets", "dimensions", "fitted_on", "centre", "centroids"} - set(told):
        raise BadCodebook(f"router.codebook: {path} is damaged: {', '.join(sorted(missing))} is missing")
    return told


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()


def _unpacked(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float32)
