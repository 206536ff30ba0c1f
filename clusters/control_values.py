"""Control records are foreign input: whoever has WRITE on a control topic wrote them (decision 0058).

Each record is read for itself. `decoded` takes bytes to a JSON object within limits; `understood` has the reader's own
`from_json` say what it is, and checks that every field has its type. What fails is an `InvalidRecord`: it is told once,
and then it is as if it was not there.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from clusters.errors import ClusterError
from clusters.typed import require_types

log = logging.getLogger("watershed.control")

Value = dict[str, Any]
T = TypeVar("T")

LARGEST: Final = 64 << 20  # bytes: what `ControlWriter` writes at most
DEEPEST: Final = 64  # nested lists and objects; ours have some ten
_SMALLEST_INT, _LARGEST_INT = -(1 << 63), (1 << 63) - 1  # what Kafka and our arrays hold
_LONG_NUMBER = re.compile(r"[0-9]{19}")
_TOLD_AT_MOST = 10_000

# Whatever a `from_json` raises about a value that is not what it expects.
UNREADABLE: Final = (ClusterError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """A record of a control topic that nobody can read. cluster: its alias; key: as far as it is text."""

    cluster: str
    topic: str
    partition: int
    offset: int
    key: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} offset {self.offset} on cluster {self.cluster}, key {self.key!r:.200}, is "
            f"not a Watershed record: {self.why}"
        )

    @property
    def remedy(self) -> str:
        return (
            f"it is ignored until the key has a tombstone or a valid value; only Watershed may write to {self.topic}: "
            "find the writer and deny it by an ACL (docs/security.md)"
        )


_told: set[tuple[str, str, int, int]] = set()


def tell_invalid(record: InvalidRecord) -> None:
    """Log it, once a process."""
    at = (record.cluster, record.topic, record.partition, record.offset)
    if at in _told:
        return
    if len(_told) >= _TOLD_AT_MOST:
        _told.clear()
    _told.add(at)
    log.warning(
        "record invalid",
        extra={"cluster": record.cluster, "topic": record.topic, "partition": record.partition,
               "offset": record.offset, "key": record.key[:200], "reason": record.why, "remedy": record.remedy},
    )  # fmt: skip


def decoded(payload: bytes) -> Value:
    """The JSON object that these bytes are. Raises ValueError, which says why they are none."""
    if len(payload) > LARGEST:
        raise ValueError(f"{len(payload)} bytes, at most {LARGEST} are read")
    try:
        text = payload.decode()
        value = _READ_SLOWLY(text) if _LONG_NUMBER.search(text) else _READ(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {_NAMES.get(type(value), 'value')}, an object is expected")
    if text.count("{") + text.count("[") > DEEPEST:
        _require_shallow(value)
    if "\\u" in text:
        _require_text(value)
    return value


def understood(read: Callable[[Value], T], value: Value, key: str | None = None) -> T:
    """What the reader makes of the value, every field of the type that it declares. key: under which it stands, for
    what knows its own. Raises ValueError."""
    try:
        found = require_types(read(value))
        if key is not None and getattr(found, "key", key) != key:
            raise ValueError("it is about something else than its key")
        return found
    except ClusterError as error:
        raise ValueError(str(error)) from None
    except UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:500]) from None


def _require_shallow(value: Value) -> None:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            each
            for holder in level
            for each in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(each, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested deeper than {DEEPEST}")


def _require_text(value: Value) -> None:
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
