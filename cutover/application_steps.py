"""Stopping and starting applications inside a step, whatever way is declared for each (docs/applications.md).

Persons are the slowest, so they are asked first where applications stop (the others go on meanwhile), and last where
they start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from watershed.cutover.actions import (
    ApplicationRole,
    ClusterSide,
    JsonObject,
    ReadApplication,
    RecallDeeds,
    ReportMessage,
    StartApplication,
    StopApplication,
)
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedApplication, RecalledDeeds
from watershed.cutover.policy import WavePolicy
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext
from watershed.topology.migration_waves import Wave


@dataclass(frozen=True, slots=True)
class ExpectedOrder:
    """An order that a step gives, known before it runs."""

    verb: Literal["stop", "start"]
    role: ApplicationRole
    name: str


# step → verb and role of the applications that it is about
_ORDERS: dict[str, tuple[tuple[Literal["stop", "start"], ApplicationRole], ...]] = {
    "fence_producers": (("stop", "producer"),),
    "stop_consumers": (("stop", "consumer"),),
    "fence_source": (("stop", "producer"),),
    "stop_at_source": (("stop", "producer"), ("stop", "consumer")),
    "start_consumers": (("start", "consumer"),),
    "start_consumers_there": (("start", "consumer"),),
    "switch_producers": (("start", "producer"),),
    "start_halted": (("start", "consumer"),),  # of a rollback: those of them that the migration had not moved
}


def list_expected_orders(step: str, wave: Wave) -> tuple[ExpectedOrder, ...]:
    """The orders that this step gives to the wave's applications; what reads and writes starts with the producers."""
    return tuple(
        ExpectedOrder(verb, role, name)
        for verb, role in _ORDERS.get(step, ())
        for name in (wave.producers if role == "producer" else wave.consumers)
        if verb == "stop" or role == "producer" or name not in wave.producers
    )


def order_stops(policy: WavePolicy, names: Iterable[str]) -> list[str]:
    """Persons first, else as in the file."""
    return sorted(names, key=lambda name: name not in policy.persons)


def order_starts(policy: WavePolicy, names: Iterable[str]) -> list[str]:
    """Persons last, else as in the file."""
    return sorted(names, key=lambda name: name in policy.persons)


def assess_application(
    context: RunContext,
    name: str,
    role: ApplicationRole,
    outcome: JsonObject,
    problems: list[str],
    where: str,
    policy: WavePolicy | None = None,
) -> ActionGenerator[ObservedApplication]:
    """Part of a preflight: reads the application's state, and keeps in `outcome` what later steps need (`applications`,
    `former`). Adds a problem where nobody could be asked. where: how to run so that somebody can. Raises Refused."""
    seen = yield from perform_action(ReadApplication(name, role), ObservedApplication, policy or context.policy)
    if seen.by == "nobody":
        problems.append(
            f"{role} {name} is stopped and started by a person, and nobody can be asked here: declare another way in "
            f"migration.applications.{name} (docs/applications.md), or run {where}"
        )
    outcome.setdefault("applications", {})[name] = seen.state
    if seen.former:
        outcome.setdefault("former", {})[name] = seen.former
    return seen


def find_persons_behind(policy: WavePolicy, names: Sequence[str], name: str) -> tuple[str, ...]:
    """The applications behind this one that persons move: `StopApplication.together`. names: all that are told the
    same, one after the other."""
    return tuple(each for each in names[names.index(name) + 1 :] if each in policy.persons)


def tell_to_stop(
    name: str, role: ApplicationRole, side: ClusterSide, policy: WavePolicy, together: tuple[str, ...] = ()
) -> ActionGenerator[ObservedApplication]:
    """Tells the application to stop, and waits until it says that it has. Raises Refused where it could not be told, or
    is late; an application that says that it still runs is returned. One that is `starting` has not
    stopped, and is waited for as well."""
    told = StopApplication(name, role, side, together)
    seen = yield from perform_action(told, ObservedApplication, policy)
    return (yield from _follow(told, "stopped", policy)) if seen.state in ("stopping", "starting") else seen


def require_stopped(seen: ObservedApplication, role: ApplicationRole) -> None:
    """Raises Refused for an application that does not say that it is stopped, and can say it."""
    if seen.state == "running":
        raise Refused(f"{role} {seen.name} was told to stop and still runs at {seen.cluster}")
    if seen.state not in ("stopped", "unknown"):
        raise Refused(f"{role} {seen.name} was told to stop and is {seen.state}")


def stop_each_application(
    context: RunContext,
    names: Iterable[str],
    role: ApplicationRole,
    side: ClusterSide,
    note: Callable[[ObservedApplication], None] = lambda _seen: None,
) -> ActionGenerator[None]:
    """Tells each to stop, persons first, and waits until it says that it has; `note` is told of each. Raises
    Refused."""
    ordered = order_stops(context.policy, names)
    for name in ordered:
        together = find_persons_behind(context.policy, ordered, name)
        seen = yield from tell_to_stop(name, role, side, context.policy, together)
        require_stopped(seen, role)
        note(seen)


def start_application_there(
    context: RunContext,
    name: str,
    role: ApplicationRole,
    side: ClusterSide,
    *,
    wait: bool = True,
    together: tuple[str, ...] = (),
) -> ActionGenerator[str]:
    """Tells the application to start there, and waits until it says that it runs. Returns the cluster's alias. wait
    False: it is enough that it was told, except where Airflow does it: there the order may be one that has yet to be
    given, because a run that stops the application is under way. Raises Refused."""
    alias = context.flow.source if side == "source" else context.flow.target
    told = StartApplication(name, role, side, context.find_former(name), together)
    seen = yield from perform_action(told, ObservedApplication, context.policy)
    if seen.state == "starting" and (wait or seen.by == "airflow"):
        seen = yield from _follow(told, "running", context.policy)
    elif seen.state == "starting":
        yield ReportMessage(
            f"{role} {name} was told to start at {alias}, and is not there yet: {seen.text or 'starting'}"
        )
    if seen.state in ("stopped", "stopping") or seen.cluster not in (None, alias):
        raise Refused(f"{role} {name} should run at {alias}; it is {seen.state} at {seen.cluster}")
    return alias


def start_applications(
    context: RunContext, names: Iterable[str], role: ApplicationRole, side: ClusterSide, outcome: JsonObject
) -> ActionGenerator[None]:
    """Starts them all there; `outcome` gets `started`: application → alias."""
    outcome["started"] = {}
    ordered = order_starts(context.policy, names)
    for name in ordered:
        together = find_persons_behind(context.policy, ordered, name)
        outcome["started"][name] = yield from start_application_there(context, name, role, side, together=together)


def restart_applications(
    context: RunContext, names: Iterable[str], role: ApplicationRole, outcome: JsonObject
) -> ActionGenerator[None]:
    """The inverse of stopping them at the source: those that ran when the run began start there again.

    A person is asked only for what the run knows to be stopped: an order that was never given, or that nobody
    confirmed, stopped nothing by the run's knowledge. Of the latter it says so: a person may have done it all the
    same."""
    outcome["started"] = {}
    ran = [name for name in names if context.was_running(name)]
    recalled = yield from perform_action(RecallDeeds("StopApplication"), RecalledDeeds, context.policy)
    begun = {deed["name"] for deed in recalled.deeds if deed["role"] == role}
    failed = {deed["name"] for deed in recalled.failed if deed["role"] == role}
    wanted = []
    for name in order_starts(context.policy, ran):
        if name in context.policy.persons and name in failed:
            yield ReportMessage(
                f"nobody confirmed that {role} {name} was stopped at {context.flow.source}: look whether it runs "
                "there, and start it if it does not"
            )
            outcome.setdefault("not_confirmed", []).append(name)
        elif name in begun or name not in context.policy.persons:
            wanted.append(name)
    for name in wanted:
        together = find_persons_behind(context.policy, wanted, name)
        outcome["started"][name] = yield from start_application_there(
            context, name, role, "source", wait=False, together=together
        )


def _follow(
    told: StopApplication | StartApplication, until: str, policy: WavePolicy
) -> ActionGenerator[ObservedApplication]:
    """Waits for what an order is about; for as long as the file gives it."""
    seen: ObservedApplication | None = None
    doing = "stop" if until == "stopped" else "start"

    def look() -> ActionGenerator[ConditionCheck]:
        nonlocal seen
        seen = yield from perform_action(ReadApplication(told.name, told.role, told), ObservedApplication, policy)
        text = f"{told.role} {told.name} was told to {doing} and is {seen.state}" + (
            f": {seen.text}" if seen.text else ""
        )
        return ConditionCheck(seen.state in (until, "unknown"), text, seen.at_ms, {"state": seen.state})

    yield from wait_for_condition(look, policy.find_application_bound_ms(told.name), policy)
    assert seen is not None
    return seen
