"""Where raw settings come from: the YAML file, the environment, flags.

All three give sections, keys and values, and know nothing of what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class ConfigError(ValueError):
    """A bad configuration; each line of the text names a key and what is allowed."""


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice, and reads only true and false as booleans.

    YAML 1.1 also reads on, off, yes and no so; then ``normalize: off`` would mean False.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in entries if tag != "tag:yaml.org,2002:bool"]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$", re.IGNORECASE), list("tTfF"))


def read_file(path: Path, sections: Collection[str]) -> dict[str, dict[str, Any]]:
    """The file's sections; they may stand at the top or below a root key ``kev``.

    Raises:
        ConfigError: it cannot be read, is not YAML, or does not hold sections of keys.
    """
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not valid YAML ({' '.join(str(error).split())})") from None
    allowed = f"must hold sections ({', '.join(sections)})"
    tree = _mapping({} if loaded is None else loaded, f"{path}: {allowed}")
    root = _mapping(tree.pop("kev", None) or {}, f"{path}: kev {allowed}")
    if both := sorted(set(root) & set(tree)):
        raise ConfigError(f"{path}: {', '.join(both)} stands both at the top and below kev; keep one")
    return {name: {} if section is None else section for name, section in {**tree, **root}.items()}


def _mapping(found: object, problem: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ConfigError(problem)
    return {str(key): value for key, value in found.items()}


class Variable(NamedTuple):
    """``KEV_CORE_PRECISION=fp32``: its name, ``core``, ``precision``, ``fp32``."""

    name: str
    section: str
    key: str
    value: str


def from_environment(environment: Mapping[str, str]) -> Iterator[Variable]:
    """The variables that may be meant for us.

    The addresses that Kubernetes puts into the environment of every container
    (``KEV_ROUTER_SERVICE_HOST``, ``KEV_ROUTER_PORT=tcp://…``) are not.
    """
    for name, value in environment.items():
        head, _, rest = name.partition("_")
        section, _, key = rest.lower().partition("_")
        if head == "KEV" and key and not _service_link(key, value):
            yield Variable(name, section, key, value)


def _service_link(key: str, value: str) -> bool:
    links = re.fullmatch(r"(.+_)?(service_(host|port(_.+)?)|port_\d+_(tcp|udp|sctp)(_.+)?)", key)
    return links is not None or (key.endswith("port") and "://" in value)


def from_flags(flags: Mapping[str, Any], sections: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    """``core.precision`` or ``core_precision`` -> ``core``, ``precision``; None means not given."""
    for path, value in flags.items():
        section, separator, key = path.partition("." if "." in path else "_")
        if section not in sections or not separator:
            raise ConfigError(f"{path}: unknown flag; name it section_key, with a section of {', '.join(sections)}")
        if value is not None:
            yield section, key, value
