"""Applications that a person moves: the exact words, the answers, what the journal remembers, what an undo asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import GROUP, POLICY, PRODUCER, World, a_migration
from watershed.cutover.actions import Action, ReadApplication, StartApplication, StopApplication
from watershed.cutover.application_steps import list_expected_orders, order_starts, order_stops, require_stopped
from watershed.cutover.errors import Refused
from watershed.cutover.journal.hash_chain import Journal, JournalEntry
from watershed.cutover.live.application_control import DeclaredApplications, find_journaled_confirmation
from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
    ApplicationVerb,
)
from watershed.cutover.live.applications.person_application import PersonAnswer, PersonRequest
from watershed.cutover.observations import ActionFailed, Observation, ObservedApplication
from watershed.cutover.run_abandonment import abandon_run
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import Wave


def order(verb: ApplicationVerb, role: str = "consumer") -> ApplicationOrder:
    side: Any = "source" if verb == "stop" else "target"
    alias = "onprem" if verb == "stop" else "cloud"
    return ApplicationOrder(verb, "billing", role, side, alias, ("b1:9092",), f"{verb}/{side}/billing")


def asked(words: str = "", answer: Any = "done") -> tuple[DeclaredApplications, list[PersonRequest]]:
    requests: list[PersonRequest] = []

    def ask(request: PersonRequest) -> PersonAnswer:
        requests.append(request)
        return PersonAnswer(answer, "ann")

    return DeclaredApplications({"billing": PlanApplication(person=words, timeout_ms=120_000)}, ask=ask), requests


def test_a_person_reads_what_to_do() -> None:
    told, requests = asked("Ask #billing; scale it by hand.")
    assert told.look("billing") == ApplicationState("unknown", None, "person")
    assert told.tell(order("stop")).text == "confirmed by ann"
    told.tell(order("start"))
    told.tell(order("start", "producer"))
    assert [each.task for each in requests] == [
        "Stop the consumer billing (at onprem), every instance of it, and wait until it has ended. "
        "Ask #billing; scale it by hand.",
        "Start the consumer billing at cloud (b1:9092). It goes on at positions that stand there: reset nothing. "
        "Ask #billing; scale it by hand.",
        "Start the producer billing at cloud (b1:9092). Ask #billing; scale it by hand.",
    ]
    assert requests[0].timeout_ms == 120_000


@pytest.mark.parametrize(
    ("answer", "words"), [("refused", r"not confirmed \(ann\): Stop the"), ("late", "nobody confirmed in 2 min: Stop")]
)
def test_a_person_who_does_not_confirm_ends_the_step(answer: str, words: str) -> None:
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        asked(answer=answer)[0].tell(order("stop"))
    assert not failed.value.transient


def test_where_nobody_can_be_asked_nothing_is_stopped() -> None:
    told = DeclaredApplications()
    assert told.look("billing") == ApplicationState("unknown", None, "nobody")
    with pytest.raises(ApplicationControlFailed, match=r"nobody can be asked.*migration\.applications\.billing"):
        told.tell(order("stop"))


def test_the_orders_of_a_step_are_known_before() -> None:
    wave = Wave("all", ("orders",), ("billing", "both"), ("checkout", "both"))

    def names(step: str) -> list[tuple[str, str]]:
        return [(each.verb, each.name) for each in list_expected_orders(step, wave)]

    assert names("stop_consumers") == [("stop", "billing"), ("stop", "both")]
    assert names("start_consumers") == [("start", "billing")]
    assert names("fence_producers") == [("stop", "checkout"), ("stop", "both")]
    assert names("switch_producers") == [("start", "checkout"), ("start", "both")]
    assert names("lag_gate") == []


PERSONAL = replace(POLICY, persons=frozenset({PRODUCER}))


def moved_by_a_person(world: World, answer: Callable[[], str]) -> list[str]:
    """The producer is moved by a person, who does what is asked if the answer is `done`. Returns what was asked."""
    requests: list[str] = []

    def hook(action: Action) -> Observation | None:
        at = int(world.now * 1000)
        if not isinstance(action, ReadApplication | StopApplication | StartApplication) or action.name != PRODUCER:
            return None
        if isinstance(action, ReadApplication):
            return ObservedApplication(at, PRODUCER, "unknown", None, "person")
        requests.append(f"{type(action).__name__} {action.side}")
        if answer() != "done":
            return ActionFailed(at, f"nobody confirmed in 30 min: {PRODUCER}", transient=False)
        world.apps[PRODUCER].running = isinstance(action, StartApplication)
        world.apps[PRODUCER].side = action.side
        return ObservedApplication(at, PRODUCER, "unknown", None, "person", "confirmed by ann")

    world.hook = hook
    return requests


def entries(log: FakeLog) -> list[JournalEntry]:
    return Journal(log, "shop", "reader").refresh().entries


def test_a_person_moves_an_application() -> None:
    world, log = World(), FakeLog()
    requests = moved_by_a_person(world, lambda: "done")
    assert a_migration(world, log, policy=PERSONAL).run().state == "done"
    assert requests == ["StopApplication source", "StartApplication target"]
    assert (world.apps[PRODUCER].side, world.apps[PRODUCER].running) == ("target", True)
    [told] = [e for e in entries(log) if e.step == "fence_producers" and e.kind == "outcome" and not e.deed]
    assert told.observation["outcome"]["stopped"] == [{"name": PRODUCER, "by": "person", "said": "confirmed by ann"}]


def test_a_person_who_is_late_finds_the_wave_taken_back_and_is_told_to_look() -> None:
    world, log = World(), FakeLog()
    requests = moved_by_a_person(world, lambda: "late")
    result = a_migration(world, log, policy=PERSONAL).run()
    assert (result.state, result.step) == ("rolled_back", "fence_producers")
    assert "nobody confirmed" in result.reason
    assert requests == ["StopApplication source"]  # nobody is asked to start what nobody stopped
    assert any("look whether it runs there" in line for line in world.said)
    assert (world.apps[GROUP].side, world.apps[GROUP].running) == ("source", True)


def test_what_a_person_stopped_a_person_starts_again() -> None:
    world, log = World(), FakeLog()
    requests = moved_by_a_person(world, lambda: "done")
    world.copying = True

    def prove(wanted: Any) -> Any:
        return replace(world.prove(wanted), verdict="different", unproven=1) if wanted.final else world.prove(wanted)

    result = a_migration(world, log, policy=PERSONAL, prove=prove).run()
    assert (result.state, result.step) == ("rolled_back", "tail_proof")
    assert requests == ["StopApplication source", "StartApplication source"]
    assert (world.apps[PRODUCER].side, world.apps[PRODUCER].running) == ("source", True)


def test_a_run_that_is_given_up_knows_what_was_confirmed() -> None:
    """The refusals of a run that is given up are in the journal, too; they do not unmake a confirmation."""
    world, log = World(), FakeLog()
    requests = moved_by_a_person(world, lambda: "done")
    a_migration(world, log, policy=PERSONAL, run_id="r1").run(until_step="fence_producers")
    assert requests == ["StopApplication source"]
    result = abandon_run(
        lambda **hooks: a_migration(
            world, log, "second", policy=PERSONAL, run_id="r1", abandon=True, **{"prove": world.prove} | hooks
        ),
        "given up",
        lambda _event: None,
        "r1",
    )
    assert result.state == "rolled_back"
    assert requests == ["StopApplication source", "StartApplication source"]


def test_nobody_is_asked_twice() -> None:
    world, log = World(), FakeLog()
    moved_by_a_person(world, lambda: "done")
    a_migration(world, log, policy=PERSONAL, run_id="r1").run(until_step="fence_producers")
    stop = replace(order("stop", "producer"), name=PRODUCER)
    assert find_journaled_confirmation(entries(log), stop) == "confirmed by ann"
    assert find_journaled_confirmation(entries(log), replace(stop, verb="start")) is None
    assert find_journaled_confirmation(entries(log), replace(stop, side="target")) is None
    told, requests = asked()
    remembers = replace(told, find_confirmation=lambda _order: "confirmed by ann")
    assert remembers.tell(order("stop")).text == "confirmed by ann"
    assert requests == []


def test_persons_are_asked_first_to_stop_and_last_to_start() -> None:
    policy = replace(POLICY, persons=frozenset({"b"}))
    assert order_stops(policy, ("a", "b", "c")) == ["b", "a", "c"]
    assert order_starts(policy, ("a", "b", "c")) == ["a", "c", "b"]


def slow_application(world: World, name: str, looks: int, former: dict[str, Any]) -> list[dict[str, Any]]:
    """It takes so many looks to stop, and to start. Returns what each order to start was told of before."""
    left, told = {"looks": 0}, list[dict[str, Any]]()

    def hook(action: Action) -> Observation | None:
        at = int(world.now * 1000)
        if getattr(action, "name", "") != name:
            return None
        if isinstance(action, ReadApplication) and action.told is not None:
            left["looks"] -= 1
            if left["looks"] > 0:
                state = "stopping" if isinstance(action.told, StopApplication) else "starting"
                return ObservedApplication(at, name, state, None, "kubernetes", "pod x is terminating")
            world.apps[name].running = isinstance(action.told, StartApplication)
            world.apps[name].side = action.told.side
            return ObservedApplication(
                at, name, "running" if world.apps[name].running else "stopped", None, "kubernetes"
            )
        if isinstance(action, ReadApplication):
            return ObservedApplication(at, name, "running", "onprem", "kubernetes", "", former)
        if isinstance(action, StopApplication | StartApplication):
            left["looks"] = looks
            if isinstance(action, StartApplication):
                told.append(action.former)
            state = "stopping" if isinstance(action, StopApplication) else "starting"
            return ObservedApplication(at, name, state, None, "kubernetes")
        return None

    world.hook = hook
    return told


@pytest.mark.parametrize("name", [GROUP, PRODUCER])
def test_an_application_that_takes_its_time_is_waited_for_and_gets_its_replicas_back(name: str) -> None:
    world, log, former = World(), FakeLog(), {"replicas": {"deployment/x": 3}}
    told = slow_application(world, name, 4, former)
    policy = replace(POLICY, application_ms={name: 60_000})
    assert a_migration(world, log, policy=policy).run().state == "done"
    assert told == [former]
    assert any("was told to stop and is stopping: pod x is terminating" in line for line in world.said)
    [deed] = [e for e in entries(log) if e.deed == "StartApplication" and e.kind == "intent"
              and e.observation["name"] == name]  # fmt: skip
    assert deed.observation["former"] == former


def test_a_pod_that_does_not_terminate_ends_the_run_and_everything_is_taken_back() -> None:
    world, log, former = World(), FakeLog(), {"replicas": {"deployment/x": 3}}
    told = slow_application(world, PRODUCER, 10**6, former)
    result = a_migration(world, log, policy=replace(POLICY, application_ms={PRODUCER: 20_000})).run()
    assert (result.state, result.step) == ("rolled_back", "fence_producers")
    assert "pod x is terminating (waited 20 s)" in result.reason
    assert told == [former]  # scaled back, and nobody waits for pods that come
    assert (world.apps[GROUP].side, world.apps[GROUP].running) == ("source", True)


def test_what_airflow_starts_again_is_waited_for() -> None:
    """The order may have to wait for the run that stops it, and would never be given."""
    world, log = World(), FakeLog()
    slow_application(world, GROUP, 4, {})
    slow = world.hook

    def by_airflow(action: Action) -> Observation | None:
        seen = slow(action)
        return replace(seen, by="airflow") if isinstance(seen, ObservedApplication) else seen

    world.hook = by_airflow

    def prove(wanted: Any) -> Any:
        return replace(world.prove(wanted), verdict="different", unproven=1) if wanted.final else world.prove(wanted)

    result = a_migration(world, log, prove=prove).run()
    assert result.state == "rolled_back"
    assert (world.apps[GROUP].side, world.apps[GROUP].running) == ("source", True)


def test_an_application_that_answers_a_stop_with_starting_has_not_stopped() -> None:
    world, log = World(), FakeLog()

    def hook(action: Action) -> Observation | None:
        at = int(world.now * 1000)
        if isinstance(action, StopApplication) and action.name == PRODUCER:
            return ObservedApplication(at, PRODUCER, "starting", None, "endpoint")
        if isinstance(action, ReadApplication) and action.name == PRODUCER and action.told is not None:
            return ObservedApplication(at, PRODUCER, "starting", None, "endpoint")
        return None

    world.hook = hook
    result = a_migration(world, log, policy=replace(POLICY, application_ms={PRODUCER: 20_000})).run()
    assert (result.state, result.step) == ("rolled_back", "fence_producers")
    assert "was told to stop and is starting (waited 20 s)" in result.reason
    seen = ObservedApplication(0, PRODUCER, "stopping", None, "endpoint")
    with pytest.raises(Refused, match="was told to stop and is stopping"):
        require_stopped(seen, "producer")
