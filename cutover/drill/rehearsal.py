"""A rehearsal from its beginning to its end: there, back where there is a way back, counted, removed.

The run there stays unfinished while the way back is rehearsed, and holds the lock again when that is over: nobody can
begin a run of the topology between the two, and whatever becomes of the way back, the copies are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutover.course import Course
from cutover.drill.course import back_course, has_way_back, last_there, there_course
from cutover.drill.plan import BACK
from cutover.driver import Migration
from cutover.policy import Policy
from cutover.procedure import Result
from topology.plan import Plan

_Opened = Callable[[Course, str], Migration]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """there: `paused` where it went through, with the applications at the target; else how it ended. back: None when it
    was not reached, or there is none. last: counting and removing."""

    there: Result
    back: Result | None = None
    last: Result | None = None

    @property
    def result(self) -> Result:
        """The first of the three that did not go well; else the last."""
        every = [each for each in (self.there, self.back, self.last) if each is not None]
        return next((each for each in every if each.state not in ("paused", "done")), every[-1])


def rehearse(
    drill: Plan,
    run: str,
    opened: _Opened,
    end: Callable[[str], object],
    policy: Policy | None = None,
    back_policy: Policy | None = None,
) -> Rehearsed:
    """drill: `cutover.drill.plan.drilled`. opened: the driver of a course under a run's name. end: ends one that
    cannot go on (`cutover.drill.ending`), with the reason; there is nobody who could repair a cause and resume.

    Raises what `Migration.run` raises.
    """
    course = there_course(drill, policy)
    migration = opened(course, run)
    there = migration.run(until_step=last_there(course))
    if there.state != "paused":
        if not there.finished:
            end(there.reason)
        return Rehearsed(there)
    back: Result | None = None
    if has_way_back(drill):
        returning = opened(back_course(drill, migration.journal.refresh(), run, back_policy), run + BACK)
        back = returning.run()
        if not back.finished:
            returning.abandon(back)
    last = migration.run()
    if not last.finished:
        end(last.reason)
    return Rehearsed(there, back, last)
