"""The two courses of a rehearsal: there, and back. Both are runs of the kind `drill`, so that nobody takes them for the
real ones; the way back names the run that it takes back."""

from __future__ import annotations

from dataclasses import replace

from cutover.course import Course, migrate_course
from cutover.drill.steps import COUNT, LOOK, MAKE, REMOVE
from cutover.errors import NothingToRollBack
from cutover.journal.chain import Chain, outcome_of
from cutover.policy import Policy, policy_of
from cutover.rollback.course import course_back
from cutover.rollback.earlier import earlier_of
from cutover.steps import Step
from topology.plan import Plan

_ASKED = ("approval",)  # the one question is asked before anything begins


def there_course(drill: Plan, policy: Policy | None = None) -> Course:
    """`drill` as `cutover.drill.plan.drilled` gives it."""
    course = migrate_course(drill, None, policy or _policy(drill))
    own = tuple(step for step in course.steps if step.name not in (*_ASKED, "seal"))
    seal = tuple(step for step in course.steps if step.name == "seal")
    return replace(course, kind="drill", steps=(LOOK, MAKE, *own, COUNT, REMOVE, *seal))


def last_there(course: Course) -> str:
    """The step behind which the applications are at the target, and the way back may begin."""
    names = [step.name for step in course.steps]
    return names[names.index(COUNT.name) - 1]


def has_way_back(drill: Plan) -> bool:
    assert drill.migration is not None
    [wave] = drill.migration.waves
    return wave.rollback is not None and wave.rollback.reverse is not None


def back_course(drill: Plan, chain: Chain, run: str, policy: Policy | None = None) -> Course:
    """The way back of the rehearsal `run`, which has come so far as `last_there`.

    Raises NothingToRollBack when it has not, NotSupported for a flow back that does not lead back.
    """
    there = there_course(drill)
    entries = chain.run(run)
    passed = outcome_of(entries, "point_of_no_return")
    if passed is None or passed[1] is not None:
        raise NothingToRollBack(f"the rehearsal {run} has not passed its point of no return")
    # Not unfinished, as this way back sees it: it goes on behind it, and removes the copies.
    earlier = replace(earlier_of(chain, entries, there.flow), state="done")
    usual = Policy()
    patient = replace(policy or _policy(drill), max_lag=usual.max_lag)
    course = course_back(drill, there, earlier, policy or replace(patient, hold_ms=usual.hold_ms), None)
    return replace(course, kind="drill", steps=_unasked(course.steps))


def rehearsed_back(drill: Plan) -> Course:
    """The same without a journal, for a dry run."""
    from cutover.rollback.course import rehearsed

    course = rehearsed(drill, None)
    return replace(course, kind="drill", steps=_unasked(course.steps))


def _unasked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.name not in _ASKED)


def _policy(drill: Plan) -> Policy:
    assert drill.migration is not None
    [wave] = drill.migration.waves
    return policy_of(wave, drill.migration)
