"""L3: positions of consumer groups on both sides, tried by the landing test (`spark.judging.group_position_landing`).

Positions are read before the window is fixed, first at the target. Records that a group has read then lie inside the
window. If the flow syncs a position in between, the target's can look behind, never ahead. A position that looks ahead
is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from watershed.clusters.group_offsets import CommittedOffsets, GroupOffsets, ListedGroup
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_translation import CopiedPartition, OffsetNotCopied, translate_offset
from watershed.replicator.sync.group_decisions import WRITABLE_GROUP_STATES, PositionMark
from watershed.replicator.sync.group_sync import is_group_selected
from watershed.spark.errors import WrongUse
from watershed.spark.fingerprint import RecordFingerprints
from watershed.spark.judging.group_position_landing import (
    RECORDS_AROUND,
    LandedPosition,
    LandingResult,
    RecordsAround,
    compare_landing,
    judge_position,
)
from watershed.spark.judging.proof_window import ObservedPartition
from watershed.spark.judging.verdict import ProofJudgement
from watershed.spark.reading.fetch_answers import OffsetsExpired
from watershed.spark.reading.offset_range import OffsetRange
from watershed.topology.plan import PlanFlow

_FAR: Final = 1_000_000  # offsets around a position that are searched for its neighbours
_OPEN_TRANSACTION_WAIT_S: Final = 5.0  # applications that run commit many times a second (Kafka Streams: 10)
_PAUSE_S: Final = 0.2
_COUNTED: Final = 100_000  # offsets between two positions whose records are counted; beyond, their offsets are

# (side, source topic, partition, offsets) -> fingerprints; side 0 is the source
_Read = Callable[[int, str, int, OffsetRange], RecordFingerprints]


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A committed offset of a group in a topic of the flow. at_target: the one committed at the target, if any.
    elsewhere: the application reads at the target itself. home: the position was synced to the source from there."""

    group: str
    target_group: str
    place: TopicPartition
    committed: int
    at_target: int | None
    elsewhere: bool = False
    home: bool = False


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """Groups whose positions are tried: of these flows (by id), all that `sync.groups` selects, or `only` these."""

    flows: frozenset[str] = frozenset()
    only: tuple[str, ...] = ()

    @staticmethod
    def of(flows: Iterable[PlanFlow], only: Collection[str]) -> GroupSelection:
        """All flows of the proof that sync groups; the groups of all flows where none syncs or some are named."""
        ids = {flow.id for flow in flows}
        carrying = {flow.id for flow in flows if has_group_sync(flow)}
        return GroupSelection(frozenset(ids if only else carrying or ids), tuple(only))

    def check(self, found: Mapping[str, FlowGroupPositions]) -> None:
        """Raises WrongUse for a named group that holds no position in a topic of any flow."""
        there = {each.group for standing in found.values() for each in standing.positions}
        known = not any(standing.problems for standing in found.values())
        for name in self.only if known else ():
            if name not in there:
                flows = ", ".join(sorted(self.flows))
                raise WrongUse(f"group {name} holds no position at the source in a topic of {flows}")

    def left_out(self, flows: Iterable[PlanFlow]) -> list[str]:
        """Notes of the report: flows whose groups are not tried."""
        without = [flow.id for flow in flows if flow.id not in self.flows]
        if not self.flows:
            return ["consumer groups (level L3)"]
        return [f"consumer groups of {', '.join(without)}: `sync.groups` carries none"] if without else []


def has_group_sync(flow: PlanFlow) -> bool:
    """Whether the flow syncs positions of consumer groups (`sync.groups`)."""
    return flow.sync.groups.mode != "never"


_Connected = Callable[[str], tuple[object, ConnectionSettings]]


class FlowGroupPositions(NamedTuple):
    """Positions of a flow's groups; problems: groups whose positions a cluster does not tell, and why."""

    positions: tuple[GroupPosition, ...] = ()
    problems: tuple[str, ...] = ()


def read_group_positions(
    asked: GroupSelection, flow: PlanFlow, connected: _Connected, topics: Collection[str]
) -> FlowGroupPositions:
    """Positions of the flow's groups in these source topics, the target's read first. Waits a moment for positions in
    open transactions; those that stay there are problems.

    Raises ClusterError.
    """
    if flow.id not in asked.flows:
        return FlowGroupPositions()
    source, target = connected(flow.source)[1], connected(flow.target)[1]
    sync = flow.sync.groups
    with GroupOffsets(target) as there, GroupOffsets(source) as here:
        listed = here.listed()
        names = sorted(asked.only) or sorted(name for name, group in listed.items() if is_group_selected(sync, group))
        at_target = _held(there, {sync.target_group(name): listed.get(name) for name in names})
        alive = {name for name, group in there.listed().items() if group.state not in WRITABLE_GROUP_STATES}
        at_source = _held(here, {name: listed.get(name) for name in names})
        target_id = there.cluster_id
    found, problems = [], []
    for name in names:
        held, renamed = at_source[name], sync.target_group(name)
        errors = [(flow.source, name, held.error), (flow.target, renamed, at_target[renamed].error)]
        problems += [f"group {id_}: its positions on {alias} are not known: {why}" for alias, id_, why in errors if why]
        if any(why for _, _, why in errors):
            continue
        hidden = {place for place in held.unstable if place.topic in topics}
        hidden_there = {at for at in at_target[renamed].unstable if at.topic in {*map(flow.target_topic, topics)}}
        problems += [_describe_pending(flow.source, name, hidden)] if hidden else []
        problems += [_describe_pending(flow.target, renamed, hidden_there)] if hidden_there else []
        for place, position in sorted(held.positions.items()):
            there_at = TopicPartition(flow.target_topic(place.topic), place.partition)
            if place.topic not in topics or there_at in hidden_there:
                continue
            beside = at_target[renamed].positions.get(there_at)
            mark = PositionMark.of(position.metadata)
            home = mark is not None and target_id in mark.path
            at = None if beside is None else beside.offset
            found.append(GroupPosition(name, renamed, place, position.offset, at, renamed in alive, home))
    return FlowGroupPositions(tuple(found), tuple(problems))


def _held(side: GroupOffsets, groups: Mapping[str, ListedGroup | None]) -> dict[str, CommittedOffsets]:
    share = [name for name, group in groups.items() if group is not None and group.type == "share"]
    found = side.held([name for name in groups if name not in share])
    until = time.monotonic() + _OPEN_TRANSACTION_WAIT_S
    while (pending := [name for name, each in found.items() if each.unstable]) and time.monotonic() < until:
        time.sleep(_PAUSE_S)
        found |= side.held(pending)
    return found | (side.read_share_offsets(share) if share else {})


def _describe_pending(alias: str, group: str, places: Collection[TopicPartition]) -> str:
    first = min(places)
    return (
        f"group {group}: {len(places)} of its positions on {alias} are not known, first that of {first}: they may be "
        f"part of a transaction that stayed open for {_OPEN_TRANSACTION_WAIT_S:g} s"
    )


def run_landing_tests(
    flow: PlanFlow,
    positions: Sequence[GroupPosition],
    observed: Sequence[ObservedPartition],
    read: _Read,
    look: Callable[[], FlowGroupPositions],
) -> list[LandedPosition]:
    """Tries every position; positions are read again (`look`) where one at the target looks ahead.

    Raises NotReadable, ClusterError.
    """
    found = run_landing_tests_once(flow, positions, observed, read)
    doubtful = {(each.group, each.topic, each.partition) for each in found if each.landing == "ahead"}
    if not doubtful:
        return found
    now = {(each.group, each.place.topic, each.place.partition): each for each in look().positions}
    again = run_landing_tests_once(flow, [now[key] for key in sorted(doubtful & now.keys())], observed, read)
    newer = {(each.group, each.topic, each.partition): each for each in again}
    return [newer.get((each.group, each.topic, each.partition), each) for each in found]


def add_group_findings(judgement: ProofJudgement, found: Iterable[LandedPosition]) -> ProofJudgement:
    """A position that skips records is a difference; one that cannot be judged forbids the word proven."""
    unknown: dict[tuple[str, str], list[LandedPosition]] = {}
    different = 0
    for each in found:
        different += each.judged == "different"
        if each.judged == "unknown":
            unknown.setdefault((each.flow, each.group), []).append(each)
    told = [
        f"group {group}: where {len(some)} of its positions land is not known, "
        f"first {some[0].topic}-{some[0].partition} at {some[0].committed}: {some[0].why}"
        for (_, group), some in unknown.items()
    ]
    return replace(judgement, blocks=(*judgement.blocks, *told), groups_differ=different)


def run_landing_tests_once(
    flow: PlanFlow, wanted: Iterable[GroupPosition], observed: Iterable[ObservedPartition], read: _Read
) -> list[LandedPosition]:
    """Tries every position once. Raises NotReadable, ClusterError."""
    seen = {(o.place.topic, o.place.partition): o for o in observed}
    around: dict[tuple[int, str, int, int], RecordsAround] = {}

    def near(side: int, place: TopicPartition, at: int, low: int, high: int) -> RecordsAround:
        key = (side, place.topic, place.partition, at)
        if key not in around:
            around[key] = _around(lambda span: read(side, place.topic, place.partition, span), low, at, high)
        return around[key]

    found = []
    for each in wanted:
        o = seen.get((each.place.topic, each.place.partition))
        try:
            found.append(_landed(flow, each, o, near, read))
        except OffsetsExpired as gone:
            why = f"records there expired while they were read: {gone}"
            found.append(replace(_unknown(flow, each), why=why))
    return found


_Near = Callable[[int, TopicPartition, int, int, int], RecordsAround]


def _landed(
    flow: PlanFlow, each: GroupPosition, o: ObservedPartition | None, near: _Near, read: _Read
) -> LandedPosition:
    place = each.place
    row = _unknown(flow, each)
    if each.home:
        return replace(row, judged="told", why="the position came from the target, where the application reads")
    if o is None:
        return replace(row, why="the partition was not compared")
    through = o.map.source_position(o.target.end) if o.map.runs else o.source.start
    committed = each.committed
    if (
        committed > through
        and o.map.runs
        and _is_empty(read, place, OffsetRange(through, min(committed, o.source.end)))
    ):
        committed = through  # a marker stands between
    there = translate_offset(place, committed, CopiedPartition(o.map, o.target.end), o.source.start, o.source.end)
    if isinstance(there, OffsetNotCopied):
        late = f"the copy was at source offset {there.copied} when the window was fixed"
        return replace(row, landing="not known" if each.at_target is not None else "not there", why=late)
    here_around = near(0, place, committed, o.source.start, through)
    there_around = near(1, place, there, o.target.start, o.target.end)
    translation = compare_landing(here_around, there_around)
    landing = _standing(each, there, translation, place, o, read)
    whole = [translation.why, landing.why]
    if each.elsewhere and landing.word == "ahead":
        whole.append("the group is alive at the target: its position there is its own")
    if each.committed > o.source.end:
        whole.append(f"it stands behind the source's log end {o.source.end}")
    return replace(
        row,
        translated=there,
        translation=translation.word,
        translation_records=translation.records,
        landing=landing.word,
        landing_records=landing.records,
        judged=judge_position(translation, landing, elsewhere=each.elsewhere),
        why="; ".join(filter(None, whole)),
        source_fp=here_around.after[0] if here_around.after else None,
        target_fp=there_around.after[0] if there_around.after else None,
    )


def _unknown(flow: PlanFlow, each: GroupPosition) -> LandedPosition:
    place, there = each.place, flow.target_topic(each.place.topic)
    names = (flow.id, each.group, each.target_group, place.topic, there, place.partition)
    return LandedPosition(*names, each.committed, at_target=each.at_target)


def _standing(
    each: GroupPosition,
    there: int,
    translation: LandingResult,
    place: TopicPartition,
    o: ObservedPartition,
    read: _Read,
) -> LandingResult:
    """How what is committed at the target stands to where the position belongs."""
    if each.at_target is None:
        return LandingResult("not there")
    if translation.word != "exact":
        if each.at_target == there:
            return LandingResult(translation.word, translation.records)
        return LandingResult("not known", why="where it belongs is not known")
    low, high = sorted((max(each.at_target, o.target.start), max(there, o.target.start)))
    high = min(high, o.target.end) if each.at_target <= there else high
    if low == high:
        return LandingResult("exact")
    word, why = ("behind" if each.at_target < there else "ahead"), ""
    end = min(high, o.target.end)
    if end - low <= _COUNTED:
        records = len(read(1, place.topic, place.partition, OffsetRange(low, end))) if end > low else 0
    else:
        records, why = end - low, "offsets, not records"
    if end < high:
        why = f"it stands behind the target's log end {o.target.end}"
    if not records and end == high:
        return LandingResult("exact", why="only markers stand between it and the translated offset")
    return LandingResult("behind" if word == "behind" else "ahead", records, why)


def _is_empty(read: _Read, place: TopicPartition, span: OffsetRange) -> bool:
    if span.end <= span.start:
        return True
    return span.end - span.start <= _COUNTED and not len(read(0, place.topic, place.partition, span))


def _around(read: Callable[[OffsetRange], RecordFingerprints], low: int, at: int, high: int) -> RecordsAround:
    """The records around `at`, between `low` and `high`; wider where few stand near (aborted, compacted)."""
    half = RECORDS_AROUND
    while True:
        start, end = max(low, at - half), min(high, at + half)
        try:
            prints = read(OffsetRange(start, end)) if start < end else None
        except OffsetsExpired as expired:
            low = expired.log_start
            continue
        offsets = [] if prints is None else prints.offset.tolist()
        fps = [] if prints is None else prints.fp.tolist()
        cut = sum(offset < at for offset in offsets)
        before, after = tuple(fps[:cut][-RECORDS_AROUND:]), tuple(fps[cut:][:RECORDS_AROUND])
        if half >= _FAR or ((before or start <= low) and (after or end >= high)):
            return RecordsAround(before, after)
        half *= 16
