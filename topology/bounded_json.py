"""JSON that somebody else wrote, read within limits: size, nesting, numbers that Kafka and JSON hold, text that can be
printed. Whatever is beyond them is a ValueError that says so, never a RecursionError or an OverflowError later on."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

MAX_JSON_BYTES: Final = 64 << 20  # bytes of a document
_DEEPEST: Final = 64  # nested lists and objects; ours have some ten
_SMALLEST_INT, _LARGEST_INT = -(1 << 63), (1 << 63) - 1  # what Kafka and our arrays hold
_LONG_NUMBER = re.compile(r"[0-9]{19}")


def parse_json(payload: bytes | str, *, largest: int = MAX_JSON_BYTES, deepest: int = _DEEPEST) -> Any:
    """The value that these bytes are. Raises ValueError, which says why they are none."""
    if len(payload) > largest:
        raise ValueError(f"{len(payload)} bytes, at most {largest} are read")
    try:
        text = payload.decode() if isinstance(payload, bytes) else payload
        value = _READ_SLOWLY(text) if _LONG_NUMBER.search(text) else _READ(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {deepest}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    if text.count("{") + text.count("[") > deepest:
        _require_shallow(value, deepest)
    if "\\u" in text:
        _require_text(value)
    return value


def parse_json_object(
    payload: bytes | str, *, largest: int = MAX_JSON_BYTES, deepest: int = _DEEPEST
) -> dict[str, Any]:
    """The same where an object is meant. Raises ValueError for a list, a number, a text."""
    value = parse_json(payload, largest=largest, deepest=deepest)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {_NAMES.get(type(value), 'value')}, an object is expected")
    return value


def _require_shallow(value: Any, deepest: int) -> None:
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        level = [
            each
            for holder in level
            for each in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(each, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested deeper than {deepest}")


def _require_text(value: Any) -> None:
    """Half a pair of surrogates can be written as an escape, and then neither printed nor hashed."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("text with half a surrogate pair") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _bounded(text: str) -> int:
    if len(text) <= 20 and _SMALLEST_INT <= (number := int(text)) <= _LARGEST_INT:
        return number
    raise ValueError(f"a number of {len(text)} digits, at most 64 bits are read")


_READ = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode
# A function called for each number costs as much as all the rest, so it is called where one is long.
_READ_SLOWLY = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded).decode
_NAMES = {list: "list", str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}
