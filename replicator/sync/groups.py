"""Positions of groups (`sync.groups`): exact, only into groups that are empty and that nobody else has moved.

What is looked at: `group_sync`. Where a position stands at the other side: `group_translation`. What becomes of it:
`group_decisions`. Why so: decision 0024.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.sync_reports import SyncReport, SyncState
from watershed.replicator.sync.group_decisions import (
    GroupObservation,
    PositionDecision,
    decide_positions,
    pick_worst_sync_state,
)
from watershed.replicator.sync.group_sync import GroupSyncer
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.drift import DriftClass, FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

MAX_REPORTED_PARTITIONS: Final = 500  # of a report
_POSITIONS: Final = "positions"  # the field of a difference that is about a group as a whole


@dataclass(slots=True)
class GroupKind:
    """Follows each flow's ledger from one time to the next, so that a round reads only what is new."""

    name: str = "groups"
    _watches: dict[tuple[str, tuple[str, ...]], GroupSyncer] = field(default_factory=dict)  # by flow and target
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync.groups` of the flow."""
        return flow.sync.groups.mode

    def every_ms(self, flow: PlanFlow) -> int:
        """`sync.groups.interval_ms` of the flow."""
        return flow.sync.groups.interval_ms

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """Committed offsets that the target lacks or has otherwise."""
        watch = GroupSyncer(flow, sides)
        return [each for sight in watch.observe() for each in build_group_differences(sight, decide_positions(sight))]

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Commit the offsets that are named in the differences."""
        wanted = {(each.name, each.field): each for each in differences}
        watch = GroupSyncer(flow, sides, retries=1)
        sights = [each for each in watch.observe() if any(name == each.target_group for name, _ in wanted)]
        errors: dict[tuple[str, str], str | None] = {}
        places = {
            move.there
            for sight in sights
            for move in decide_positions(sight)
            if move.there is not None and (sight.target_group, str(move.there)) in wanted
        }
        for group, found in watch.carry(sights, places).items():
            name = flow.sync.groups.target_group(group)
            for move in found:
                done = move.write is not None or move.state == "equal"
                errors[name, str(move.there)] = None if done else move.why
        gone = "the group is not there any more"
        return [DifferenceOutcome(each, errors.get(at, gone)) for at, each in wanted.items()]

    def keep(self, flow: PlanFlow, sides: SyncClusters) -> list[SyncReport]:
        """Look and commit, and say of every group what became of it."""
        watch = self._watch(flow, sides)
        sights = watch.observe()
        carried = watch.carry(sights)
        return [shorten_group_report(build_group_report(flow, sight, carried[sight.group])) for sight in sights]

    def _watch(self, flow: PlanFlow, sides: SyncClusters) -> GroupSyncer:
        """The keeper never has one flow's kind under way twice, so a watch is used by one thread at a time."""
        at = flow.id, sides.target.bootstrap
        with self._lock:
            found = self._watches.get(at)
            if found is None or (found.sides.source, found.sides.target) != (sides.source, sides.target):
                found = self._watches[at] = GroupSyncer(flow, sides)  # or the settings have changed
            found.flow = flow
            return found


def build_group_report(flow: PlanFlow, sight: GroupObservation, found: list[PositionDecision]) -> SyncReport:
    """Of one group, with every partition in `detail`."""
    detail: dict[str, Any] = {
        "type": sight.here.type,
        "state": sight.here.state,
        "target_group": sight.target_group,
        "target_state": sight.there.state if sight.there is not None else None,
        "partitions": [move.to_json() for move in found],
    }
    if sight.here.type == "share":
        detail["known"] = "the start offset only: records behind it that were acknowledged out of order come again"
    if sight.state is not None:
        detail["streams"] = _describe_readiness(sight, sight.state)
    state, why = summarize_group_state(sight, found)
    return SyncReport(flow.id, "groups", sight.group, state, why, detail)


def _describe_readiness(sight: GroupObservation, state: StateRange) -> dict[str, Any]:
    """Whether a Streams application could go on at the target with its state: its internal topics, what their copies
    lack for the positions that are committed next, when those were read (ms since 1970), and a sentence."""
    missing = {str(place): text for place, text in sorted(sight.missing.items())[:MAX_REPORTED_PARTITIONS]}
    internal = sorted({place.topic for place in state.least})
    told = f"the copies of {', '.join(internal)} hold all state that belongs to its positions"
    if sight.refusal:
        told = f"no standby: {sight.refusal}"
    elif missing:
        more = f" (and {len(sight.missing) - 1} more)" if len(sight.missing) > 1 else ""
        told = f"its standby waits for state: {next(iter(missing.values()))}{more}"
    found = {"internal": internal, "missing": missing, "told": told}
    return found | ({"read_at_ms": state.at_ms} if missing else {})


def shorten_group_report(report: SyncReport) -> SyncReport:
    """With as many partitions as one record takes (some 250 bytes each), those first that need a person."""
    partitions = report.detail["partitions"]
    if len(partitions) <= MAX_REPORTED_PARTITIONS:
        return report
    first = sorted(partitions, key=lambda each: each["state"] in ("equal", "carried"))[:MAX_REPORTED_PARTITIONS]
    return replace(
        report, detail={**report.detail, "partitions": first, "more": len(partitions) - MAX_REPORTED_PARTITIONS}
    )


def summarize_group_state(sight: GroupObservation, found: list[PositionDecision]) -> tuple[SyncState, str]:
    """The worst of its partitions, with the reason of the first of those; or why the group is left alone."""
    if sight.refusal:
        return ("different" if sight.here.protocol == "connect" else "refused"), sight.refusal
    state = pick_worst_sync_state(found)
    those = [move for move in found if move.state == state and move.why]
    if not those or state == "equal":
        return state, those[0].why if those else ""
    others = len(those) - 1
    more = f" (and {others} more partition{'s' if others > 1 else ''})" if others else ""
    place, why = str(those[0].place), those[0].why
    return state, (why if why.startswith(f"{place} ") else f"{place}: {why}") + more


def build_group_differences(sight: GroupObservation, found: list[PositionDecision]) -> list[FieldDrift]:
    """Field by field what would be committed; what would not is one line a group."""
    cluster, group = sight.target_alias, sight.target_group
    report = [
        FieldDrift(
            cluster, "group", group, str(move.there), _text(move.at_target), _text(move.write.offset),
            why=move.why,
        )
        for move in found
        if move.write is not None
    ]  # fmt: skip
    state, why = summarize_group_state(sight, [move for move in found if move.write is None])
    if state != "equal":
        drift: DriftClass = "unsupported" if state in ("different", "refused") else "unknown"
        report.append(FieldDrift(cluster, "group", group, _POSITIONS, None, None, drift, False, why))
    return report


def _text(offset: int | None) -> str | None:
    return None if offset is None else str(offset)
