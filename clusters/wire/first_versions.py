"""The versions 0 of administrative requests, which kio does not have: Kafka 0.11 to 1.1 know no others.

Each is made of kio's version 1, field by field as in the JSON of these messages: what version 1 brought is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import lru_cache
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from kio.index import load_entity_module
from kio.static.constants import EntityType
from kio.static.primitive import i16

_PATTERN: Final = frozenset({"pattern_type_filter", "resource_pattern_type", "pattern_type"})  # KIP-290
# request → fields that version 0 lacks, in it, in its answer, and in their parts
_LACKING: Final[Mapping[str, frozenset[str]]] = {
    "describe_acls": _PATTERN,
    "create_acls": _PATTERN,
    "delete_acls": _PATTERN,
    "describe_configs": frozenset({"include_synonyms", "synonyms"}),  # KIP-226
    "describe_log_dirs": frozenset(),
}
_IS_DEFAULT: Final = "is_default"  # of a config, in the place of `config_source` in version 1


def has_first_version(name: str, version: int) -> bool:
    """Whether this is a request that kio lacks in this version, and that stands here."""
    return version == 0 and name in _LACKING


@lru_cache(maxsize=32)
def build_first_version(name: str, side: Literal["request", "response"]) -> Any:
    """The class of a request, or of its answer, as kio would have it."""
    kind: Any = EntityType.request if side == "request" else EntityType.response
    newer = getattr(load_entity_module(name, 1, kind), name.title().replace("_", "") + side.title())
    return _without(newer, _LACKING[name])


def _without(newer: Any, lacking: frozenset[str]) -> Any:
    hints = get_type_hints(newer)
    kept: list[tuple[str, Any, Any]] = []
    for each in fields(newer):
        if each.name in lacking:
            continue
        if each.name == "config_source":
            kept.append((_IS_DEFAULT, bool, field(metadata={"kafka_type": "bool"})))
            continue
        kept.append((each.name, _replace_parts(hints[each.name], lacking), field(metadata=each.metadata)))
    marks = ("__type__", "__flexible__", "__api_key__", "__header_schema__")
    namespace = {mark: getattr(newer, mark) for mark in marks} | {"__version__": i16(0)}
    return make_dataclass(newer.__name__, kept, frozen=True, slots=True, kw_only=True, namespace=namespace)


def _replace_parts(hint: Any, lacking: frozenset[str]) -> Any:
    """The type of a field, with parts in version 0, too."""
    if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
        return tuple[_without(get_args(hint)[0], lacking), ...]  # type: ignore[misc]
    if type(None) in get_args(hint):
        (inner,) = (each for each in get_args(hint) if each is not type(None))
        return _replace_parts(inner, lacking) | None
    return hint
