"""What a record of the ledger is about, by its key; and whether what it says can be taken for a record at all."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ProtocolError

_NUMBERS = ("start", "producer_id", "epoch", "base")
_TEXTS = ("flow", "target_topic")


class FlowPartition(NamedTuple):
    """A partition as the keys of its records name it; topic is the source's name."""

    flow: str
    topic: str
    partition: int


def parse_ledger_key(record_key: str) -> FlowPartition | None:
    """Which partition a record is about, as its key says, which begins alike in every kind of record and every version.
    None for one of no partition: the way of a slot (`path`), or none of ours."""
    try:
        flow, topic, partition, _rest = record_key.split("|", 3)
        return FlowPartition(flow, topic, int(partition))
    except ValueError:
        return None


def build_unreadable_error(record: ControlRecord, why: str) -> ProtocolError:
    """Names the record, so that a person can find it."""
    return ProtocolError(
        f"{LEDGER_TOPIC} holds a record at partition {record.partition} offset {record.offset} that this version "
        f"cannot read "
        f"({why}), under key {record.key!r:.200}. If a newer version of Watershed wrote it, use that one "
        "(docs/upgrade.md)",
        topic=LEDGER_TOPIC,
        partition=record.partition,
    )


@lru_cache(maxsize=10_000)
def parse_topic_id(text: str) -> uuid.UUID:
    """The id of a topic; all partitions of the topic share the object. Raises ValueError, AttributeError, TypeError."""
    return uuid.UUID(text)


def require_field_types(value: ControlValue, mostly: Mapping[str, Any]) -> None:
    """What is told of a block has the type that it should have; mostly: what it may leave out. The runs are read into
    arrays, which take numbers only. Raises KeyError, TypeError."""
    for name in _NUMBERS:
        _require_like(name, value[name], 0)
    for name, found in value.items():
        if name in mostly:
            _require_like(name, found, mostly[name])
        elif name in _TEXTS:
            _require_like(name, found, "")
    for entry in value.get("epochs", ()):
        for at, each in enumerate(entry):
            _require_like(f"epochs, number {at}", each, 0)


def _require_like(name: str, found: Any, like: Any) -> None:
    if type(found) is not type(like):
        raise TypeError(f"{name}: {type(found).__name__} where {type(like).__name__} is meant")
