"""Which partitions a worker is to serve: flows, their topics, the slots it was given, and the placement, together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from watershed.clusters.budget_breaches import BudgetBreach, describe_breach
from watershed.clusters.control_topics import compute_slot
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_orders import find_partition_order, index_partition_orders
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import OVER_BUDGET, PAUSED, Halt
from watershed.replicator.topic_mapping import HoldReason, MappedTopic
from watershed.replicator.worker.partition_task import UNCHANGED_S
from watershed.topology.plan import PlanFlow

# What changes in a report while nothing happens: readers reckon it from the worker's heartbeat.
_CLOCKS = ("at_ms", "event_age_ms", "lag_ms", "source_seen_ms")
_content = attrgetter(*(field.name for field in fields(PartitionStatus) if field.name not in _CLOCKS))


@dataclass(frozen=True, slots=True)
class _AssignedPartition:
    """A partition that this worker serves.

    serving: the slot that makes it ours. held: why it cannot be copied. gap_method: how gaps are closed, where offsets
    are equal. is_paused: a person has ordered that it stands still, beside the others of its flow.
    """

    record: FlowRecord
    serving: int
    held: HoldReason | None = None
    hint: str = ""
    gap_method: GapMethod | None = None
    is_paused: bool = False


def assign_partitions(
    flows: Mapping[str, FlowRecord],
    topics: Mapping[str, Sequence[MappedTopic]],
    slots: Collection[int],
    placed: Mapping[str, int],
    breaches: Mapping[str, BudgetBreach] | None = None,
) -> dict[PartitionKey, _AssignedPartition]:
    """`placed`: `flow|topic|partition` → slot, where that is not the partition's own (clusters.fleet.PlacementRecord).
    breaches: flow → the budget breach by which it stands still.

    A flow that copies in transactions is never placed: the transactional id is that of the ledger's slot.
    """
    assigned: dict[PartitionKey, _AssignedPartition] = {}
    for flow_id, record in flows.items():
        moves, pauses = placed if record.flow.delivery != "transactions" else {}, index_partition_orders(record.pauses)
        stands_by = _build_breach_hold((breaches or {}).get(flow_id))
        for mapped in topics.get(flow_id, ()):
            if not record.selects(mapped.topic):
                continue
            for partition in range(mapped.partitions):
                serving = moves.get(f"{flow_id}|{mapped.topic}|{partition}", -1)
                if serving < 0:
                    serving = compute_slot(flow_id, mapped.topic, partition)
                if serving in slots:
                    key = PartitionKey(flow_id, mapped.topic, mapped.target_topic, partition)
                    held = (mapped.held if partition >= mapped.copied else mapped.refused) or stands_by
                    note = mapped.note if partition == 0 else ""
                    paused = find_partition_order(pauses, mapped.topic, partition) is not None
                    assigned[key] = _AssignedPartition(record, serving, held, note, mapped.gap_method, paused)
    return assigned


def _build_breach_hold(breach: BudgetBreach | None) -> HoldReason | None:
    """Why no partition of the flow is copied. A pause is what the file asks for; a failure needs somebody."""
    if breach is None:
        return None
    state = PAUSED if breach.action == "pause" else OVER_BUDGET
    halt = Halt(OVER_BUDGET, describe_breach(breach))
    return HoldReason(state, halt.error, halt.remedy_for(breach.flow, "TOPIC", "N"))


def compute_quota_shares(
    ours: Collection[PartitionKey], flows: Mapping[str, FlowRecord], topics: Mapping[str, Sequence[MappedTopic]]
) -> dict[str, float]:
    """What part of each flow's partitions is ours, and so of its quota: all workers together must not exceed it."""
    mine = Counter(key.flow for key in ours)
    everybody = {
        flow_id: sum(mapped.partitions for mapped in topics.get(flow_id, ()) if record.selects(mapped.topic))
        for flow_id, record in flows.items()
    }
    return {flow_id: mine[flow_id] / total for flow_id, total in everybody.items() if total}


def can_keep_copying(before: PlanFlow, after: PlanFlow) -> bool:
    """Whether partitions that are being copied may go on as they are: only what is discovered, created or asked for
    elsewhere has changed."""
    return before == replace(
        after,
        topics=before.topics,
        engine=before.engine,
        placement=before.placement,
        heal_ms=before.heal_ms,
        workers=before.workers,
        discovery_ms=before.discovery_ms,
        start=before.start,
        replication_factor=before.replication_factor,
        sync_configs=before.sync_configs,
        sync_configs_include=before.sync_configs_include,
        sync_configs_exclude=before.sync_configs_exclude,
        configs_set=before.configs_set,
        verify=before.verify,
        breach=before.breach,
        merge=before.merge,
        delivery_reason=before.delivery_reason,
        grow=before.grow,
        offsets_reason=before.offsets_reason,
        sync=before.sync,
        compatibility=before.compatibility,
    ) and before.sync.schemas.has_same_output_as(after.sync.schemas)


def needs_report(report: PartitionStatus, last: PartitionStatus | None) -> bool:
    """Whether a report says something new, or has to be written again although it does not."""
    if last is None or report.at_ms - last.at_ms >= UNCHANGED_S * 1000:
        return True
    return _content(report) != _content(last)
