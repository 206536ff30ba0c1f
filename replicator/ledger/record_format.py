"""What a record of the ledger is about, by its key; and whether what it says can be taken for a record at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from clusters.control_records import ControlRecord
from clusters.control_topics import LEDGER_TOPIC
from clusters.control_values import ControlValue
from clusters.errors import ProtocolError

_NUMBERS = ("start", "producer_id", "epoch", "base")


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
        f"({why}), under key {record.key!r:.200}",
        topic=LEDGER_TOPIC,
        partition=record.partition,
    )


def require_field_types(value: ControlValue, mostly: Mapping[str, Any]) -> None:
    """What is told of a block has the type that it should have; mostly: what it may leave out. The runs are read into
    arrays, which take numbers only. Raises KeyError, TypeError."""
    fields: dict[str, tuple[Any, Any]] = {name: (value[name], 0) for name in _NUMBERS}
    fields |= {name: (value[name], default) for name, default in mostly.items() if name in value}
    numbers = [each for entry in value.get("epochs", ()) for each in entry]
    fields |= {f"epochs, number {at}": (each, 0) for at, each in enumerate(numbers)}
    fields |= {name: (value[name], "") for name in ("flow", "target_topic") if name in value}
    for name, (found, like) in fields.items():
        if type(found) is not type(like):
            raise TypeError(f"{name}: {type(found).__name__} where {type(like).__name__} is meant")
