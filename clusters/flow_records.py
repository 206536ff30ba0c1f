"""Desired state: which flows the workers of a target cluster serve, in the `watershed.flows` topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import TopicMissing, UnreadableControlRecord
from watershed.clusters.fleet import FLEET_PREFIX, PLACEMENT_PREFIX, SUPERVISOR_PREFIX
from watershed.clusters.partition_orders import (
    PartitionMove,
    PartitionPause,
    describe_move,
    describe_pause,
)
from watershed.clusters.producer_registry import PRODUCER_PREFIX
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.copy_bounds import CopyBound
from watershed.topology.delivery_guarantee import Guarantee
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector

FlowState = Literal["running", "paused", "stopped"]
# An offset: there, whether the log still reaches so far or not. A bound has to be looked up at the source first
# (`replicator.recovery.start_offsets`).
StartPosition = Literal["earliest", "latest"] | int | CopyBound
DECISION_PREFIX = "order|"  # keys of decisions about single partitions (`replicator.recovery.operator_decisions`)
GROUP_PREFIX = "group|"  # keys of what is written down of consumer groups (`replicator.sync.group_control_records`)
ALIGNMENT_PREFIX = "alignment|"  # keys of decisions about equal offsets (`clusters.alignment_records`)
WITHHELD_RIGHTS_PREFIX = "withheld|"  # keys of rights that wait for a failover (`clusters.withheld_rights_records`)
JOURNALED_PREFIX = "journaled|"  # keys of what workers write down for good (`topology journal --orders`)
SYNCED_ACLS_PREFIX = "synced_acls|"  # keys of rights that a sync gave (`clusters.synced_access_records`)
PROTECTION_PREFIX = "protection|"  # keys of denials that protect a target (`clusters.protection_records`)
SYNCED_USER_PREFIX = "synced_user|"  # keys of users that were made because a sync named them (the same module)
BREACH_PREFIX = "breach|"  # keys of what budgets did to flows (`clusters.budget_breaches`)
END_PREFIX = "end|"  # keys of where partitions end (`clusters.partition_end_records`)
_BESIDE_PAUSES: Final = "state_beside_pauses"  # key of the state that a flow with pauses has
NON_FLOW_PREFIXES = (
    *(FLEET_PREFIX, PLACEMENT_PREFIX, DECISION_PREFIX, PRODUCER_PREFIX, GROUP_PREFIX, ALIGNMENT_PREFIX),
    *(WITHHELD_RIGHTS_PREFIX, JOURNALED_PREFIX, SUPERVISOR_PREFIX, END_PREFIX, SYNCED_ACLS_PREFIX, SYNCED_USER_PREFIX),
    PROTECTION_PREFIX,
    BREACH_PREFIX,
)


@dataclass(frozen=True, slots=True)
class FlowRecord(ControlRecordBody):
    """A flow as it should be now. `generation` grows with every order to restart; `producer_id` is the id that the
    target cluster issued for the flow's life; `source_cluster_id` is where its records come from, whatever this or
    another topology file calls that cluster.

    existed: only with `start: latest`, source topic → how many partitions it had when the flow was applied and first
    selected it. Those begin at their end; whatever came later began after the flow and is copied from its start.
    retired: source topics that the flow no longer copies because their applications have moved to the target
    (`cutover`). New records in the target topic belong to those applications.
    begins: source topic → the offset at which a partition begins that nobody has copied yet, by partition; it counts
    before `start`. A migration gives it to the flow back: there the copy begins with the switch (`cutover.flow_steps`).
    end_revision: how often the flow's end (`delivery.end`) was changed since it was applied first. Ends that were found
    for another revision do not count any more (`clusters.partition_end_records`).
    guarantee: what the clusters could give the flow when it was applied (`topology.delivery_guarantee`); None where
    nobody wrote it down.
    unprotected: source topics whose applications move to the target now or have moved there: `protect` does not hold
    for what they are called there (`replicator.sync.protection`).
    answered_breaches: number of the newest budget breach that a person answered, so that the flow goes on behind it
    (`clusters.budget_breaches`).
    pauses, moves: what persons ordered about single topics and partitions. A running flow with pauses is written as a
    paused one, with its state under another key: workers of versions that do not know pauses leave all of the flow
    alone, and copy nothing that is paused (decision 0116).
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a flow record",
        FLOWS_TOPIC,
        added_later=(
            *("existed", "retired", "begins", "guarantee", "end_revision", "pauses", "moves", "unprotected"),
            "answered_breaches",
        ),
        remedy="Write it again with `topology apply`",
    )
    flow: PlanFlow
    plan_hash: str
    topology: str
    generation: int = 1
    state: FlowState = "running"
    producer_id: int | None = None
    source_cluster_id: str | None = None
    existed: Mapping[str, int] | None = None
    retired: frozenset[str] = frozenset()
    begins: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    guarantee: Guarantee | None = None
    end_revision: int = 0
    pauses: tuple[PartitionPause, ...] = ()
    moves: tuple[PartitionMove, ...] = ()
    unprotected: frozenset[str] = frozenset()
    answered_breaches: int = 0

    @property
    def key(self) -> str:
        """The flow's id."""
        return str(self.flow.id)

    def adapt_for_earlier_versions(self, value: ControlValue) -> ControlValue:
        """A running flow with pauses stands there as a paused one. What came later is written where it says
        something."""
        silent = [name for name in ("unprotected", "answered_breaches") if not getattr(self, name)]
        value = {name: each for name, each in value.items() if name not in silent}
        if not self.pauses or self.state != "running":
            return value
        return value | {"state": "paused", _BESIDE_PAUSES: self.state}

    @classmethod
    def undo_adaptation(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """The value with the state that the flow has beside its pauses."""
        is_adapted = value.get("state") == "paused" and value.get("pauses") and _BESIDE_PAUSES in value
        return {**value, "state": value[_BESIDE_PAUSES]} if is_adapted else value

    def selects(self, topic: str) -> bool:
        """Whether the flow copies this source topic now."""
        return topic not in self.retired and self.flow.selects(topic)

    @property
    def serving(self) -> PlanFlow:
        """The flow as workers serve it: retired topics are excluded."""
        chosen, retired = self.flow.topics, tuple(Selector("literal", topic) for topic in sorted(self.retired))
        return replace(self.flow, topics=replace(chosen, exclude=(*chosen.exclude, *retired))) if retired else self.flow

    def start_of(self, topic: str, partition: int) -> StartPosition:
        """Where a source partition that nobody has copied yet begins."""
        at = self.begins.get(topic, {}).get(partition)
        if at is not None:
            return at
        if self.flow.start == "latest" and not (self.existed is None or partition < self.existed.get(topic, 0)):
            return "earliest"
        return choose_start(self.flow, topic, partition)

    def with_state(self, state: FlowState) -> FlowRecord:
        """The same record with another desired state."""
        return replace(self, state=state)

    def with_beginnings(self, begins: Mapping[str, Mapping[int, int]]) -> FlowRecord:
        """With these beginnings, too. Partitions that the flow has copied already go on where they are."""
        topics = {*begins, *self.begins}
        return replace(
            self, begins={name: {**self.begins.get(name, {}), **begins.get(name, {})} for name in sorted(topics)}
        )

    def without(self, topics: Iterable[str]) -> FlowRecord:
        """The same record with these topics retired: the flow copies them no more."""
        return replace(self, retired=self.retired | frozenset(topics))

    def without_protection(self, topics: Iterable[str]) -> FlowRecord:
        """The same record with these source topics open to applications at the target."""
        return replace(self, unprotected=self.unprotected | frozenset(topics))

    def with_protection(self, topics: Iterable[str]) -> FlowRecord:
        """The inverse of `without_protection`."""
        return replace(self, unprotected=self.unprotected - frozenset(topics))

    def protects(self, topic: str) -> bool:
        """Whether applications shall not write to what this source topic is called at the target."""
        return self.flow.protect and self.state != "stopped" and topic not in self.unprotected and self.selects(topic)

    def with_topics_again(self, topics: Iterable[str]) -> FlowRecord:
        """The inverse of `without`."""
        return replace(self, retired=self.retired - frozenset(topics))


def choose_start(flow: PlanFlow, topic: str, partition: int) -> StartPosition:
    """Where the file lets a source partition begin. Those of which it names no offset begin at the log's start."""
    if isinstance(flow.start, CopyBound) and flow.start.offsets and flow.start.find_offset(topic, partition) is None:
        return "earliest"
    return flow.start


def describe_partition_orders(record: FlowRecord) -> tuple[str, ...]:
    """What persons ordered about single topics and partitions, one text each."""
    return (*map(describe_pause, record.pauses), *map(describe_move, record.moves))


def read_flows(settings: ConnectionSettings, unreadable: dict[str, ValueError] | None = None) -> dict[str, FlowRecord]:
    """All flows into this cluster by id; empty when the cluster has no control topics yet. unreadable: is filled with
    the keys whose newest record cannot be read."""
    try:
        return read_latest_records(
            settings,
            FLOWS_TOPIC,
            FlowRecord.from_json,
            lambda key: not key.startswith(NON_FLOW_PREFIXES),
            unreadable=unreadable,
        )
    except TopicMissing:
        return {}


def read_flow_to_change(settings: ConnectionSettings, flow_id: str) -> FlowRecord | None:
    """The flow's record for somebody who writes it again; None without one.

    Raises UnreadableControlRecord where a newer version wrote the newest record: the one before it still counts for
    who only reads, but written again it would undo what the newer one says of topics that have moved. A record that
    no version wrote may be written over.
    """
    unreadable: dict[str, ValueError] = {}
    found = read_flows(settings, unreadable).get(flow_id)
    error = unreadable.get(flow_id)
    if isinstance(error, UnreadableControlRecord) and error.is_newer:
        raise error
    return found


def write_flow(writer: ControlWriter, record: FlowRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`."""
    return writer.put(FLOWS_TOPIC, record.key, record.to_json())
