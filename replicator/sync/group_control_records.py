"""What is written down of groups beside flows, in `watershed.flows` of the target cluster.

Key `group|carried|<flow>|<group>`  what the flow carried last: source offsets and the target offsets made from them
Key `group|decision|<flow>|<group>`    a journaled decision that a group may go back, or be taken from somebody else
Key `group|state|<flow>|<group>`    where the state of a Streams application stands that belongs to its positions

The marks on the positions themselves tell which are ours (`group_decisions`). A record of what was carried is needed
only where a mark cannot tell: for share groups, which keep no text, and where a flow the other way has to know from
which of its own positions the source's were made. It is written before the commit, so both sides of a crash are in it.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import ControlRecord, read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, ControlWriter, encode_control_value
from watershed.clusters.control_values import ControlValue, log_invalid_record
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import GROUP_PREFIX, JOURNALED_PREFIX, NON_FLOW_PREFIXES, FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.streams_state_range import STATE_RANGE_PREFIX, StateRange
from watershed.clusters.topic_partition import TopicPartition

_CARRIED, _ORDER = f"{GROUP_PREFIX}carried|", f"{GROUP_PREFIX}order|"


@dataclass(frozen=True, slots=True)
class SyncedPositions(ControlRecordBody):
    """Of one group. source: source partition → offset; target: target partition → the offset made from it; before:
    what `target` said before the newest write, which may not have come to pass."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a record of a group", FLOWS_TOPIC)
    flow: str
    group: str
    source: Mapping[TopicPartition, int] = field(default_factory=dict)
    target: Mapping[TopicPartition, int] = field(default_factory=dict)
    before: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Key of the record in watershed.flows."""
        return f"{_CARRIED}{self.flow}|{self.group}"

    def with_positions(
        self, source: Mapping[TopicPartition, int], target: Mapping[TopicPartition, int]
    ) -> SyncedPositions:
        """The same group with these positions set; the former target positions move to `before`."""
        return replace(self, source={**self.source, **source}, target={**self.target, **target}, before={**self.target})

    def ours(self, place: TopicPartition, offset: int) -> bool:
        """Whether the target's position is one that we may have set."""
        return offset in (self.target.get(place), self.before.get(place))


@dataclass(frozen=True, slots=True)
class GroupResetDecision(ControlRecordBody):
    """`flow` may set `group` (as it is called at the target), although that goes back or takes it from somebody else:
    once, and only while the target's positions are those in `answers` (None: none). at_ms: since 1970."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a decision about a group", FLOWS_TOPIC, constants={"kind": "reset-group"}
    )
    flow: str
    group: str
    answers: Mapping[TopicPartition, int | None]
    actor: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def key(self) -> str:
        """Key of the record in watershed.flows."""
        return f"{_ORDER}{self.flow}|{self.group}"


def journal_group_reset(writer: ControlWriter, decision: GroupResetDecision, topology: str) -> None:
    """Write the decision down for good, then order it. Raises ClusterError."""
    line: dict[str, Any] = {"record": "order", "of": topology} | decision.to_json()
    writer.put(JOURNAL_TOPIC, _name(line, decision), _hashed(line), 0)
    writer.put(FLOWS_TOPIC, decision.key, decision.to_json(), 0)


def close_group_reset(
    writer: ControlWriter, decision: GroupResetDecision, outcome: Mapping[TopicPartition, str]
) -> None:
    """Write down for good what became of it by partition, then take it back: it is never obeyed again. Workers have no
    right to write to the journal, so both are beside the flows. Raises ClusterError."""
    outcomes = {str(place): text for place, text in sorted(outcome.items())}
    line: dict[str, Any] = {"record": "order-obeyed", **decision.to_json(), "outcome": outcomes}
    writer.put(FLOWS_TOPIC, JOURNALED_PREFIX + _name(line, decision), _hashed(line), 0)
    writer.put(FLOWS_TOPIC, decision.key, None, 0)


def record_group_sync(writer: ControlWriter, flow: str, groups: Iterable[str], actor: str, topology: str) -> None:
    """Write down for good, beside the flows, that a person has these groups' positions carried over now. Raises
    ClusterError."""
    line: dict[str, Any] = {"record": "order", "of": topology, "kind": "sync", "flow": flow, "groups": sorted(groups)}
    line |= {"id": uuid.uuid4().hex[:12], "at_ms": time.time_ns() // 1_000_000, "actor": actor}
    writer.put(FLOWS_TOPIC, f"{JOURNALED_PREFIX}order/{flow}/sync/{line['id']}", _hashed(line), 0)


def _name(line: Mapping[str, Any], decision: GroupResetDecision) -> str:
    return f"{line['record']}/{decision.flow}/group/{decision.group}/{decision.id}"


def _hashed(line: dict[str, Any]) -> dict[str, Any]:
    return line | {"hash": "sha256:" + hashlib.sha256(encode_control_value(line)).hexdigest()}


class FlowsFollower:
    """`watershed.flows` of one cluster, followed: flows, and what is written down of groups. Not thread-safe."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._next = 0
        self._flows: dict[str, FlowRecord] = {}
        self._carried: dict[str, SyncedPositions] = {}
        self._orders: dict[str, GroupResetDecision] = {}
        self._states: dict[str, StateRange] = {}

    def read(self) -> None:
        """Raises ClusterError. A cluster without control topics has none."""
        try:
            for record in read_control_log(self._settings, FLOWS_TOPIC, [0], self._next):
                self._next = record.offset + 1
                self._take(record)
        except TopicMissing:
            for known in (self._flows, self._carried, self._orders, self._states):
                known.clear()
            self._next = 0

    def flows(self) -> dict[str, FlowRecord]:
        """All flows by id, as last read."""
        return dict(self._flows)

    def carried(self, flow: str, group: str) -> SyncedPositions:
        """The positions last committed for this group; empty if there are none."""
        nothing = SyncedPositions(flow, group)
        return self._carried.get(nothing.key, nothing)

    def state_ranges(self, flow: str) -> dict[str, StateRange]:
        """By group: the state that belongs to the positions which the flow committed last."""
        return {each.group: each for each in self._states.values() if each.flow == flow}

    def decision(self, flow: str, group: str) -> GroupResetDecision | None:
        """The newest decision to reset this group's offsets; None if there is none."""
        return self._orders.get(f"{_ORDER}{flow}|{group}")

    def _take(self, record: ControlRecord) -> None:
        """What cannot be read changes nothing, as for the workers (`replicator.worker.desired_state`)."""
        kinds: tuple[tuple[str | tuple[str, ...], dict[str, Any] | None, Callable[[ControlValue, str], Any]], ...] = (
            (_CARRIED, self._carried, SyncedPositions.from_json),
            (_ORDER, self._orders, GroupResetDecision.from_json),
            (STATE_RANGE_PREFIX, self._states, StateRange.from_json),
            (NON_FLOW_PREFIXES, None, lambda value, _key: value),
            ("", self._flows, FlowRecord.from_json),
        )
        known, read = next((known, read) for beginning, known, read in kinds if record.key.startswith(beginning))
        if known is None:
            return
        if record.value is None:
            known.pop(record.key, None)
            return
        try:
            known[record.key] = read(record.value, record.key)
        except ValueError as error:
            log_invalid_record(record.invalid(self._settings.alias, FLOWS_TOPIC, str(error)))
