"""Plain data as a YAML document that every reader understands alike: texts stand in double quotes, as JSON has them.

YAML 1.1 and 1.2 take `on`, `1e3` and `0777` for other things than text, and each reader for others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from watershed.topology.interop.topology_writer import quote_yaml_text

_PLAIN_KEY: Final = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
# Keys that YAML 1.1 does not take for text.
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def render_yaml_document(value: Mapping[str, Any]) -> str:
    """Block style; lists hold mappings or scalars. Ends in a newline."""
    return "\n".join(_render_mapping(value, "")) + "\n"


def _render_mapping(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, each in value.items():
        shown = key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS else quote_yaml_text(key)
        if isinstance(each, Mapping) and each:
            yield f"{indent}{shown}:"
            yield from _render_mapping(each, indent + "  ")
        elif isinstance(each, list) and each:
            yield f"{indent}{shown}:"
            for item in each:
                yield from _render_item(item, indent + "  ")
        else:
            yield f"{indent}{shown}: {_render_scalar(each)}"


def _render_item(item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        first, *rest = _render_mapping(item, indent + "  ")
        yield f"{indent}- {first.lstrip()}"
        yield from rest
    else:
        yield f"{indent}- {_render_scalar(item)}"


def _render_scalar(value: Any) -> str:
    return quote_yaml_text(value) if isinstance(value, str) else json.dumps(value)
