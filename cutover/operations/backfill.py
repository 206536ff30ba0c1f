"""A bounded copy of a selection by a flow of the file: `topology backfill`.

The flow is applied with a start and an end (`delivery.start`, `delivery.end`) and with fewer topics. Workers copy it as
they copy any flow, so its ledger has the runs, and the flow goes on behind it without a gap or a repeat when the file
itself is applied. A log grows at its end only: what lies in front of what the flow has copied cannot be put there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import explain_breach, read_budget_breaches
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import FleetRecord, read_fleet
from watershed.clusters.flow_records import FlowRecord, read_flows
from watershed.clusters.partition_end_records import PartitionEnd, build_end_key, read_partition_ends
from watershed.clusters.partition_orders import describe_topic_pauses
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from watershed.cutover.operations.proposal import OperationRefused
from watershed.replicator.ledger.ledger import Ledger, read_ledger
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.found_ends import look_up_ends
from watershed.replicator.recovery.log_inspection import LeaderLog, require_leader_logs
from watershed.replicator.recovery.start_offsets import StartOrTrouble, find_starts
from watershed.topology.copy_bounds import CopyBound, CopyEnd, CopyStart, build_offsets_bound, parse_instant
from watershed.topology.loader import load_topology
from watershed.topology.plan import Plan, PlanFlow, seal_plan
from watershed.topology.rule import RuleContext
from watershed.topology.rules.mig.mig831_migrated_flow_ends import RULE as MIG831
from watershed.topology.rules.tpc.tpc424_end_before_start import RULE as TPC424
from watershed.topology.rules.tpc.tpc425_end_of_a_pair import RULE as TPC425
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.shell_command import render_shell_command

_PLACE: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+):(?P<offset>\d+)")

_END_RULES: Final = (MIG831, TPC424, TPC425)


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """start, end: what `delivery.start` and `.end` would say. topics: names or globs among those that the flow copies,
    () for all. max_rate: bytes a second, None: as the flow says. file: what messages call the topology file."""

    flow: str
    start: CopyStart
    end: CopyEnd
    topics: tuple[str, ...] = ()
    max_rate: int | None = None
    file: str = "FILE"


@dataclass(frozen=True, slots=True)
class BackfilledPartition:
    """Source offsets first <= offset < end of one partition are to be copied. position: where the copy goes on, -1: it
    has not begun. log: the source's offsets (start, end)."""

    key: PartitionKey
    first: int
    end: int
    position: int
    log: tuple[int, int]

    @property
    def left(self) -> int:
        """How many offsets are still to be copied."""
        return max(0, self.end - max(self.first, self.position))


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """plan: what is to be applied: the flow with its bounds, and the file's other flows that are applied already."""

    plan: Plan
    flow: PlanFlow
    partitions: tuple[BackfilledPartition, ...]


def parse_backfill_start(text: str) -> CopyStart:
    """`earliest`, `group:NAME`, an instant, or `TOPIC:PARTITION:OFFSET,…`. Raises OperationRefused."""
    if text == "earliest":
        return "earliest"
    if text.startswith("group:") and len(text) > len("group:"):
        return CopyBound(group=text.removeprefix("group:"))
    return _parse_bound("--from", text, "earliest, group:NAME,")


def parse_backfill_end(text: str) -> CopyEnd:
    """`latest`, an instant, or `TOPIC:PARTITION:OFFSET,…`. Raises OperationRefused."""
    return "latest" if text == "latest" else _parse_bound("--to", text, "latest,")


def _parse_bound(option: str, text: str, words: str) -> CopyBound:
    try:
        return CopyBound(timestamp_ms=parse_instant(text))
    except ValueError as error:
        no_instant = str(error)
    places = [_PLACE.fullmatch(part.strip()) for part in text.split(",")]
    offsets: dict[str, dict[int, int]] = {}
    for found in places:
        if found is None or _is_without_zone(text):
            raise OperationRefused(
                f"{option} {text}: write {words} an instant such as 2026-11-01T00:00:00Z ({no_instant}), or offsets as "
                "TOPIC:PARTITION:OFFSET,TOPIC:PARTITION:OFFSET"
            )
        offsets.setdefault(found["topic"], {})[int(found["partition"])] = int(found["offset"])
    return build_offsets_bound(offsets)


def _is_without_zone(text: str) -> bool:
    """Whether it is an instant without a zone, which reads like an offset of a topic `2026-11-01T00`."""
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def require_boundable(path: Path, asked: BackfillRequest) -> None:
    """See that the rules of `delivery.end` hold for the flow with these bounds. Raises OperationRefused."""
    loaded = load_topology(path)
    assert loaded.topology is not None, "it was compiled"
    flows = tuple(
        replace(each, plan=replace(each.plan, start=asked.start, end=asked.end)) if each.id == asked.flow else each
        for each in loaded.topology.flows
    )
    context = RuleContext(replace(loaded, topology=replace(loaded.topology, flows=flows)))
    found = [problem for rule in _END_RULES for problem in rule.check(context) if asked.flow in problem.ids]
    if found:
        raise OperationRefused("\n".join(f"{each.message} ({each.code}): {each.help}" for each in found))


def plan_backfill(plan: Plan, connect: SettingsLookup, asked: BackfillRequest) -> BackfillPlan:
    """Looks at both clusters, writes nothing. Raises OperationRefused, NotInPlan, ClusterError."""
    flow = plan.flow(asked.flow)
    source, target = connect(flow.source), connect(flow.target)
    if flow.transform is not None:
        raise OperationRefused(
            f"{flow.id} changes records (`transform`), which needs workers with Spark. Write `delivery.start` and "
            "`.end` into the file, apply it, and run `topology worker --transforms`"
        )
    with Admin(source) as admin:
        shapes = {name: shape.partitions for name, shape in admin.shapes().items() if flow.selects(name)}
    chosen = choose_backfilled_topics(flow, shapes, asked)
    bounded = bind_flow(flow, chosen, asked)
    flows = read_flows(target)
    record, ledger = flows.get(flow.id), read_ledger(target, flow=flow.id)
    fleet = read_fleet(target, plan.topology, flow.target)
    if why := explain_unservable_flow(record, fleet, len(ledger.copies()), asked.file):
        raise OperationRefused(why)
    if why := explain_breach(record, read_budget_breaches(target), asked.file):
        raise OperationRefused(why)
    if why := explain_paused_topics(record, chosen, asked.file):
        raise OperationRefused(why)
    keys = [
        PartitionKey(flow.id, name, flow.target_topic(name), number)
        for name in chosen
        for number in range(shapes[name])
    ]
    is_resumed = record is not None and record.flow.start == bounded.start
    found = _look_at_partitions(keys, bounded, asked, source, target, ledger, is_resumed=is_resumed)
    copies = ledger.copies()
    if not is_resumed and (
        refused := [why for each in found if (why := explain_misplaced_start(each, copies.get(each.key)))]
    ):
        raise OperationRefused("\n".join(refused))
    others = [each for each in plan.flows if each.id != flow.id and each.target == flow.target and each.id in flows]
    whole = seal_plan(replace(plan, flows=tuple(sorted([*others, bounded], key=lambda each: each.id))))
    return BackfillPlan(whole, bounded, tuple(found))


def choose_backfilled_topics(flow: PlanFlow, shapes: Mapping[str, int], asked: BackfillRequest) -> list[str]:
    """Source topics, sorted. shapes: those that the flow copies, with their partitions. Raises OperationRefused."""
    chosen = sorted(shapes)
    if asked.topics:
        chosen = [name for name in chosen if any(fnmatchcase(name, glob) for glob in asked.topics)]
        lost = [glob for glob in asked.topics if not any(fnmatchcase(name, glob) for name in shapes)]
        if lost:
            raise OperationRefused(
                f"--topics {lost[0]}: {flow.id} copies no such topic of {flow.source}; it copies "
                f"{', '.join(sorted(shapes)) or 'none that is there'}"
            )
    if not chosen:
        raise OperationRefused(f"{flow.id} copies no topic that is on {flow.source} now")
    for bound in (asked.start, asked.end):
        named = dict(bound.offsets) if isinstance(bound, CopyBound) else {}
        for topic, offsets in named.items():
            unknown = [number for number, _ in offsets if number >= shapes.get(topic, 0)]
            if topic not in chosen or unknown:
                what = f"topic {topic}" if topic not in chosen else f"partition {topic}-{unknown[0]}"
                raise OperationRefused(f"an offset is named of {what}, which is not among what is to be copied")
    end = asked.end
    if isinstance(end, CopyBound) and end.offsets:
        open_ends = [
            f"{name}-{number}"
            for name in chosen
            for number in range(shapes[name])
            if end.find_offset(name, number) is None
        ]
        if open_ends:
            raise OperationRefused(
                f"--to names no offset of {', '.join(open_ends[:5])}, so these would never end. Name one for each "
                "partition, or choose topics (--topics)"
            )
    return chosen


def bind_flow(flow: PlanFlow, topics: Sequence[str], asked: BackfillRequest) -> PlanFlow:
    """The flow as it is applied for the backfill. Equal offsets need all records from the log's start on."""
    mapped = flow.offsets == "mapped" or asked.start != "earliest"
    return replace(
        flow,
        topics=TopicSelection(tuple(Selector("literal", name) for name in topics), flow.topics.exclude),
        start=asked.start,
        end=asked.end,
        state="running",
        quota=asked.max_rate if asked.max_rate is not None else flow.quota,
        offsets="mapped" if mapped else flow.offsets,
        offsets_reason="a backfill begins in the middle"
        if mapped and flow.offsets != "mapped"
        else flow.offsets_reason,
    )


def explain_misplaced_start(part: BackfilledPartition, copied: tuple[OffsetMap, object] | None) -> str:
    """Why the selection cannot follow what the flow has copied of a partition; "" where it can, or nothing is."""
    if copied is None or part.position < 0:
        return ""
    first, where = _find_first(copied[0], part.position), f"{part.key.topic}-{part.key.partition}"
    if part.first < first:
        return (
            f"{where}: {part.key.flow} has copied source offsets {first} to {part.position - 1} into "
            f"{part.key.target_topic}, and a log grows at its end only: offset {part.first} cannot be put in front of "
            "them. Copy the older records with a second flow that has a `suffix` and target names of its own"
        )
    if part.first > part.position:
        return (
            f"{where}: {part.key.flow} goes on at source offset {part.position}, so offsets {part.position} to "
            f"{part.first - 1} would be copied as well. Let the backfill begin there, or use a second flow with a "
            "`suffix` and target names of its own"
        )
    return ""


def find_open_partitions(
    target: ConnectionSettings, backfill: BackfillPlan
) -> tuple[list[BackfilledPartition], dict[str, PartitionEnd]]:
    """(partitions whose end is not reached, what is written down of ends). Raises ClusterError."""
    record, ends = read_flows(target)[backfill.flow.id], read_partition_ends(target)
    return [part for part in backfill.partitions if not _is_complete(part.key, record, ends)], ends


def _is_complete(key: PartitionKey, record: FlowRecord, ends: Mapping[str, PartitionEnd]) -> bool:
    found = ends.get(build_end_key(key.flow, key.topic, key.partition))
    return found is not None and found.is_of(record) and found.is_reached


def explain_paused_topics(record: FlowRecord | None, topics: Iterable[str], file: str) -> str:
    """Why these source topics cannot be copied to an end now: persons have paused them, or partitions of them; "" where
    none are."""
    pauses = describe_topic_pauses(record.key, record.pauses, file) if record is not None else {}
    return "; ".join(pauses[topic] for topic in topics if topic in pauses)


def explain_unservable_flow(record: FlowRecord | None, fleet: FleetRecord | None, copied: int, file: str) -> str:
    """Why the flow, as it was applied, takes no backfill now; "" where it does. copied: partitions that it has begun.
    Does no I/O."""
    if fleet is not None and fleet.state != "running":
        command = render_shell_command("topology", "fleet", "start", file, "--target", fleet.target)
        return f"the fleet into {fleet.target} is {fleet.state}, so no worker copies; `{command}` starts it"
    if record is None:
        return ""
    flow = record.flow
    if record.state != "running":
        command = render_shell_command("topology", "flow", "resume", flow.id, file)
        return f"{flow.id} is {record.state}, so no worker copies it; `{command}` lets it go on"
    if flow.end is not None or not copied:
        return ""
    return (
        f"{flow.id} was applied without an end and has copied {copied} partitions: it copies everything behind what it "
        "has, and nothing can be put in front of that, because a log grows at its end only. Older records need a "
        "second flow with a `suffix` and target names of its own, which `topology backfill` copies as well"
    )


def _look_at_partitions(
    keys: Sequence[PartitionKey],
    bounded: PlanFlow,
    asked: BackfillRequest,
    source: ConnectionSettings,
    target: ConnectionSettings,
    ledger: Ledger,
    *,
    is_resumed: bool,
) -> list[BackfilledPartition]:
    """is_resumed: what was begun was begun by the same start, which is not looked up again: a group may have moved."""
    copies = ledger.copies()
    known = {key: copies[key][0] for key in keys if key in copies}
    here = require_leader_logs(source, [(key.topic, key.partition) for key in keys], READ_COMMITTED)
    logs = {key: here[TopicPartition(key.topic, key.partition)] for key in keys}
    fresh = {key: log for key, log in logs.items() if not (is_resumed and key in known)}
    starts = find_starts(FlowRecord(bounded, "", ""), fresh, source)
    before_ms = asked.end.timestamp_ms if isinstance(asked.end, CopyBound) else None
    ends = look_up_ends(source, list(keys), before_ms)
    there = require_leader_logs(target, [(key.target_topic, key.partition) for key in known], READ_UNCOMMITTED)
    found, refused = [], []
    for key in keys:
        position = -1
        if key in known:
            position = known[key].source_position(there[TopicPartition(key.target_topic, key.partition)].end)
        first = _read_start(starts[key], logs[key]) if key in fresh else _find_first(known[key], position)
        end = _read_end(ends[key], key, asked.end, logs[key])
        if isinstance(first, str) or isinstance(end, str):
            refused += [f"{key.topic}-{key.partition}: {why}" for why in (first, end) if isinstance(why, str)]
            continue
        found.append(BackfilledPartition(key, first, end, position, (logs[key].start, logs[key].end)))
    if refused:
        raise OperationRefused("\n".join(refused))
    return found


def _find_first(copied: OffsetMap, position: int) -> int:
    """The first source offset that was copied; the position where none was."""
    return copied.runs[0].source if copied.runs else position


def _read_start(found: StartOrTrouble, log: LeaderLog) -> int | str:
    """The offset, or why there is none."""
    if isinstance(found, Halt):
        return found.error
    if isinstance(found, Reinspect):
        return found.reason
    return {"earliest": log.start, "latest": log.end}[found] if isinstance(found, str) else found


def _read_end(found: int | ClusterError, key: PartitionKey, end: CopyEnd, log: LeaderLog) -> int | str:
    """The offset as far as it can be told now; an instant that no record has reached: the log's end."""
    if isinstance(end, CopyBound) and end.offsets:
        named = end.find_offset(key.topic, key.partition)
        assert named is not None, "an offset is named for each"
        return named
    if isinstance(found, ClusterError):
        return str(found)
    return found if found >= 0 else log.end


def estimate_backfill_bytes(
    partitions: Iterable[BackfilledPartition], sizes: Mapping[tuple[str, int], int]
) -> int | None:
    """Bytes that are still to be copied, by each log's size and the share of its offsets. sizes: bytes of logs, empty
    where no broker tells: None then."""
    if not sizes:
        return None
    total = 0
    for part in partitions:
        whole = part.log[1] - part.log[0]
        total += sizes.get((part.key.topic, part.key.partition), 0) * part.left // whole if whole else 0
    return total
