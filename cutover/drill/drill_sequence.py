"""A rehearsal from its beginning to its end: there, back where there is a way back, counted, removed.

The run there stays unfinished while the way back is rehearsed, and holds the lock again when that is over: nobody can
begin a run of the topology between the two, and whatever becomes of the way back, the copies are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watershed.cutover.drill.drill_plan import find_last_step_there, has_way_back, plan_drill, plan_drill_back
from watershed.cutover.drill.drill_topology import BACK_RUN_SUFFIX
from watershed.cutover.driver import RunDriver
from watershed.cutover.policy import WavePolicy
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.step_runner import RunResult
from watershed.topology.plan import Plan

_Opened = Callable[[RunPlan, str], RunDriver]


@dataclass(frozen=True, slots=True)
class DrillResult:
    """there: `paused` where it went through, with the applications at the target; else how it ended. back: None when it
    was not reached, or there is none. last: counting and removing."""

    there: RunResult
    back: RunResult | None = None
    last: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """The first of the three that did not go well; else the last."""
        every = [each for each in (self.there, self.back, self.last) if each is not None]
        return next((each for each in every if each.state not in ("paused", "done")), every[-1])


def run_drill(
    drill: Plan,
    run: str,
    opened: _Opened,
    end: Callable[[str], object],
    policy: WavePolicy | None = None,
    back_policy: WavePolicy | None = None,
) -> DrillResult:
    """drill: `cutover.drill.drill_topology.build_drill_topology`. opened: the driver of a run plan under a run's name.
    end: ends one that cannot go on (`cutover.drill.drill_abandonment`), with the reason; there is nobody who could
    repair a cause and resume.

    Raises what `Migration.run` raises.
    """
    run_plan = plan_drill(drill, policy)
    migration = opened(run_plan, run)
    there = migration.run(until_step=find_last_step_there(run_plan))
    if there.state != "paused":
        if not there.finished:
            end(there.reason)
        return DrillResult(there)
    back: RunResult | None = None
    if has_way_back(drill):
        returning = opened(plan_drill_back(drill, migration.journal.refresh(), run, back_policy), run + BACK_RUN_SUFFIX)
        back = returning.run()
        if not back.finished:
            returning.abandon(back)
    last = migration.run()
    if not last.finished:
        end(last.reason)
    return DrillResult(there, back, last)
