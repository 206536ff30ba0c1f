"""One record of the ledger: a block of runs of one generation of a partition."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from watershed.clusters.control_record_codec import require_known_version
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_values import UNREADABLE_ERRORS, ControlValue
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.record_format import build_unreadable_error, parse_topic_id, require_field_types
from watershed.replicator.ledger.run_json import decode_runs, encode_runs
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity

_SCHEMA = 2
BLOCK_RUNS = 2048
CLAIM_NUMBER = 0  # number of the block that holds the first run of what a partition begins with, and nothing else


class Generation(NamedTuple):
    """Order of takeovers; two workers that took over at once differ by their names."""

    number: int
    worker: str


@dataclass(frozen=True, slots=True)
class LedgerBlock:
    """One ledger record: up to BLOCK_RUNS runs of one generation of one partition, in any order.

    number: counts the records of its generation, in the order in which they were written.

    epochs, since, order, note, adopted: see `replicator.ledger.ledger_state.LedgerState`. needs_epoch: whoever
    looks next must not write under this producer epoch. closed: this generation sends nothing more, and everything it
    sent was answered. after: of a producer epoch that was begun to be alone, the newest one that had landed something;
    those between never count. filling, given_up: see `replicator.ledger.ledger_state.LedgerState`.
    """

    key: PartitionKey
    generation: Generation
    number: int
    start: int  # the target's log end when this generation began
    identity: ProducerIdentity
    source_id: uuid.UUID
    target_id: uuid.UUID
    runs: Sequence[OffsetRun]
    at: int = -1  # its offset in the ledger, when it was read from there
    epochs: tuple[LeaderEpochEntry, ...] = ()
    since: int = 0
    order: str = ""
    note: str = ""
    needs_epoch: bool = False
    closed: bool = False
    after: int = -1
    adopted: str = ""
    filling: bool = False
    given_up: int = -1

    @property
    def record_key(self) -> str:
        """Key of the record in watershed.ledger: `flow|topic|partition|generation.worker|number`."""
        generation = f"{self.generation.number}.{self.generation.worker}"
        return f"{self.key.flow}|{self.key.topic}|{self.key.partition}|{generation}|{self.number}"

    def to_json(self) -> ControlValue:
        """The value of the record. It repeats neither the key nor fields that have their default value."""
        value: ControlValue = {
            "schema": _SCHEMA,
            "flow": self.key.flow,
            "start": self.start,
            "producer_id": self.identity.producer_id,
            "epoch": self.identity.epoch,
            "base": self.identity.base,
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
        } | encode_runs(self.runs)
        if self.key.target_topic != self.key.topic:
            value["target_topic"] = self.key.target_topic
        if self.epochs:
            value["epochs"] = [list(epoch) for epoch in self.epochs]
        values = {name: getattr(self, name) for name in _MOSTLY}
        return value | {name: what for name, what in values.items() if what != _MOSTLY[name]}

    @staticmethod
    def from_record(record: ControlRecord) -> LedgerBlock:
        """Raises ProtocolError for a record that is not a block of a schema that is known here."""
        value = record.value or {}
        try:
            key, generation, number = _placed(record.key, value)
            require_field_types(value, _MOSTLY)
            return LedgerBlock(
                key=key,
                generation=generation,
                number=number,
                start=value["start"],
                identity=ProducerIdentity(value["producer_id"], value["epoch"], value["base"]),
                source_id=parse_topic_id(value["source_id"]),
                target_id=parse_topic_id(value["target_id"]),
                runs=decode_runs(value),
                at=record.offset,
                epochs=tuple(LeaderEpochEntry(source, epoch) for source, epoch in value.get("epochs", ())),
                **{name: value[name] for name in value.keys() & _MOSTLY.keys()},
            )
        except UNREADABLE_ERRORS as error:
            raise build_unreadable_error(record, repr(error)) from None


# What a block mostly says of the rest; only what is otherwise is written down.
_MOSTLY: dict[str, Any] = {
    "since": 0,
    "order": "",
    "note": "",
    "needs_epoch": False,
    "closed": False,
    "after": -1,
    "adopted": "",
    "filling": False,
    "given_up": -1,
}


def _placed(record_key: str, value: ControlValue) -> tuple[PartitionKey, Generation, int]:
    """Partition, generation, number. Raises KeyError and ValueError for what is none of ours."""
    if require_known_version(value, _SCHEMA) == 1:
        key = PartitionKey(value["flow"], value["topic"], value["target_topic"], value["partition"])
        return key, Generation(value["generation"], value["worker"]), value["block"]
    flow, topic, partition, written_by, number = record_key.split("|")
    generation, worker = written_by.split(".", 1)
    if value["flow"] != flow:
        raise ValueError("it is about another flow than its key")
    key = PartitionKey(flow, topic, value.get("target_topic", topic), int(partition))
    return key, Generation(int(generation), worker), int(number)
