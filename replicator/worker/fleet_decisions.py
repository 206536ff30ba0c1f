"""What the supervisor of a fleet does next. No I/O: facts in, actions out.

A fleet is resized at once. A restart replaces one worker at a time, and only while all partitions are served: with
`surge` the new worker is there before the old one ends, without it (where a core may not be free) it comes afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.replicator.partition_states import RETRYING, STARTING

FIRST_PAUSE_S: Final = 1.0  # before a worker that has died is started again
LONGEST_PAUSE_S: Final = 30.0
QUICK_DEATH_S: Final = 30.0  # a worker that lived shorter has not worked
_SILENT_MS: Final = 15_000  # as in `replicator.worker.flow_state`
_CHANGING_HANDS: Final = frozenset({STARTING, RETRYING})


@dataclass(frozen=True, slots=True)
class HostedWorker:
    """A worker that the supervisor has started. place: a number from 0 on. restarts: the fleet's restarts when it was
    started. serving: it is a member of the group. ending: it was told to end. waits: it has not begun, and begins when
    there is room: nobody has to wait for it."""

    place: int
    restarts: int
    serving: bool = False
    ending: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """wanted, restarts: as the fleet's record says. resting: places whose worker has died, and that wait. all_served:
    every partition is served by a worker that is there, but for those that nobody could serve before the restart."""

    wanted: int
    restarts: int
    workers: tuple[HostedWorker, ...]
    resting: frozenset[int] = frozenset()
    all_served: bool = False
    surge: bool = True


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker at a place."""

    place: int


@dataclass(frozen=True, slots=True)
class EndWorker:
    """Tell the worker at a place to finish what is in flight, hand its partitions over and end."""

    place: int


def decide_fleet_actions(facts: FleetFacts) -> list[StartWorker | EndWorker]:
    """The next steps from what is there to what should be; none while it has to wait for earlier ones."""
    live = [each for each in facts.workers if not each.ending]
    old = [each for each in live if each.restarts < facts.restarts]
    limit = facts.wanted + (1 if old and facts.wanted and facts.surge else 0)
    if len(live) > limit:
        # Those that a restart would replace go first, then the newest places.
        leaving = sorted(live, key=lambda each: (each.restarts >= facts.restarts, -each.place))
        return [EndWorker(each.place) for each in leaving[: len(live) - limit]]
    if len(live) < limit:
        return [StartWorker(place) for place in _find_free_places(facts, limit - len(live))]
    if old and facts.wanted and _can_replace(facts, live):
        return [EndWorker(min(old, key=lambda each: (not each.waits, each.place)).place)]
    return []


def is_at_size(facts: FleetFacts) -> bool:
    """Whether as many workers serve as should, and none is left from before the last restart."""
    live = [each for each in facts.workers if not each.ending]
    current = all(each.serving and each.restarts >= facts.restarts for each in live)
    return len(live) == facts.wanted and current


def _find_free_places(facts: FleetFacts, count: int) -> list[int]:
    """The lowest ones. A place that waits after a death counts as taken up: its worker comes back there."""
    taken = {each.place for each in facts.workers}
    resting = facts.resting - taken
    places = (place for place in range(len(taken) + len(resting) + count) if place not in taken | resting)
    return list(places)[: max(count - len(resting), 0)]


def _can_replace(facts: FleetFacts, live: Iterable[HostedWorker]) -> bool:
    nobody_ends = not any(each.ending for each in facts.workers)
    return nobody_ends and all(each.serving or each.waits for each in live) and facts.all_served


def compute_restart_pause(quick_deaths: int) -> float:
    """Seconds to wait before a worker is started again that has died so many times in a row soon after its start."""
    return min(FIRST_PAUSE_S * float(2 ** min(max(quick_deaths - 1, 0), 10)), LONGEST_PAUSE_S)


def find_unserved_partitions(
    reports: Iterable[PartitionStatus], workers: Collection[str], now_ms: int
) -> list[PartitionStatus]:
    """The partitions that are in the hands of none of these workers (their names), or are changing hands.

    A halted partition counts as served: no other worker would serve it better. now_ms: milliseconds since 1970.
    """
    return [
        report
        for report in reports
        if report.worker not in workers or report.state in _CHANGING_HANDS or now_ms - report.at_ms > _SILENT_MS
    ]


def is_in_trouble(report: PartitionStatus, now_ms: int) -> bool:
    """Whether an unserved partition is not just changing hands: a broker does not answer, or nobody reports it."""
    return report.state == RETRYING or now_ms - report.at_ms > _SILENT_MS
