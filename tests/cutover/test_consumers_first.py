"""The migration end to end in a fake world: clean, refused at every gate, and always exact."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from clusters.names import TopicPartition
from cutover.actions import (
    Action,
    AskApproval,
    CommitOffsets,
    ForgetGroup,
    LookAtCluster,
    LookAtGroup,
    LookAtLogs,
    StartApplication,
    StopApplication,
)
from cutover.consumers_first import ACTS, UNDOS, Result
from cutover.errors import NotSupported, Refused
from cutover.ground import Ground
from cutover.observations import ApprovalSeen, Failed, LogsSeen, Observation, ProofSeen
from cutover.offsets import CopiedPartition
from cutover.policy import Policy
from cutover.steps import NO_WAY_BACK, PRESENTATION, steps_of, undo_of
from replicator.offsetmap import OffsetMap, Run
from tests.cutover.world import GROUP, PRODUCER, FakeLog, World, a_migration, a_plan, target_of
from topology.plan import Verify

PLACE = TopicPartition("clicks", 0)


def lost_and_repeated(world: World) -> tuple[int, int]:
    """After everything was read: records never processed, records processed more than once."""
    world.settle()
    seen = Counter(world.processed)
    return world.written - len(seen), sum(count - 1 for count in seen.values())


def assert_moved(world: World, result: Result) -> None:
    assert result.state == "done", result
    assert {name: (app.side, app.running) for name, app in world.apps.items()} == {
        GROUP: ("target", True),
        PRODUCER: ("target", True),
    }
    assert lost_and_repeated(world) == (0, 0)


def assert_back(world: World, result: Result, state: str = "rolled_back") -> None:
    """Everything is where it was: applications run at the source, and nothing of ours is left on the target."""
    assert result.state == state, result
    assert result.exit_code == 1
    assert {name: (app.side, app.running) for name, app in world.apps.items()} == {
        GROUP: ("source", True),
        PRODUCER: ("source", True),
    }
    assert GROUP not in world.offsets["target"]
    world.tick()
    assert lost_and_repeated(world) == (0, 0)


def test_runs_through_clean() -> None:
    world = World()
    result = a_migration(world, FakeLog()).run()
    assert_moved(world, result)
    assert any("POINT OF NO RETURN" in line for line in world.said)
    assert world.flow_state == "stopped"


def test_a_flow_that_carries_more_than_the_wave_goes_on_and_the_note_says_what_follows() -> None:
    world, log = World(), FakeLog()
    world.new_topics = {"later": 1}
    assert_moved(world, a_migration(world, log, plan=a_plan(topics=("later",))).run())
    assert world.flow_state == "running"
    (sealed,) = [r["observation"] for r in log.records if (r["step"], r["kind"], r["deed"]) == ("seal", "outcome", "")]
    assert re.search("carries later too and stays running.*clicks, orders report target_foreign_write", str(sealed))


def test_every_step_has_a_row_an_act_and_words() -> None:
    names = [step.name for step in steps_of(Policy())]
    assert list(ACTS) == names
    undone = {undo_of(name) for name in UNDOS}
    assert set(PRESENTATION) == set(names) | undone
    assert [step.name for step in steps_of(Policy()) if step.point_of_no_return] == ["point_of_no_return"]
    assert {s.name for s in steps_of(Policy()) if s.undo not in (None, NO_WAY_BACK)} == set(UNDOS)


# Each row: what goes wrong in the world, and at which step. Before the first deed the result is `refused`.
Spoil = Callable[[World], None]


def _at(kind: type[Action], spoil: Spoil, nth: int = 1, step: str = "") -> Spoil:
    """Spoil the world when the n-th action of that kind comes (in that step, by what was said)."""

    def prepare(world: World) -> None:
        count = 0

        def hook(action: Action) -> Observation | None:
            nonlocal count
            here = not step or any(line.startswith(f"{step}: begin") for line in world.said)
            if isinstance(action, kind) and here:
                count += 1
                if count == nth:
                    spoil(world)
            return None

        world.hook = hook

    return prepare


def _failing(kind: type[Action], step: str, error: str = "no") -> Spoil:
    """From that step on, that kind of action is refused for good, until the step is over."""

    def prepare(world: World) -> None:
        def hook(action: Action) -> Observation | None:
            now = next((line for line in reversed(world.said) if ": begin" in line), "")
            if isinstance(action, kind) and now.startswith(f"{step}: "):
                return Failed(int(world.now * 1000), error, transient=False)
            return None

        world.hook = hook

    return prepare


def _stranger(side: str) -> Spoil:
    def spoil(world: World) -> None:
        world.strangers[side] = 1  # type: ignore[index]

    return spoil


def _straggle(world: World) -> None:
    world.write("source", TopicPartition("orders", 1))


def _foreign(world: World) -> None:
    world.logs["target"][target_of(TopicPartition("orders", 1))].append("foreign")


def _no_copying(world: World) -> None:
    world.copying = False


def _run_ahead(world: World) -> None:
    world.copying = False
    for _ in range(5):
        world.tick()


def _expire(world: World) -> None:
    """The source's retention takes all that orders-0 holds, the last of it before it was copied."""
    _no_copying(world)
    place = TopicPartition("orders", 0)
    for _ in range(4):
        world.write("source", place)
    world.starts[place] = len(world.logs["source"][place])


def _corrupt(world: World) -> None:
    """The target holds other records than the source."""
    log = world.logs["target"][target_of(TopicPartition("orders", 0))]
    log[:] = [f"not {record}" for record in log]


def _verdict(verdict: str, unproven: int) -> Spoil:
    def spoil(world: World) -> None:
        world.verdict = ProofSeen(0, verdict, unproven, {"missing": unproven}, "/proofs/s.json", "root")

    return spoil


REFUSALS: list[tuple[str, str, Spoil, str]] = [
    ("preflight", "refused", _failing(LookAtCluster, "preflight", "cluster onprem does not answer"), "does not answer"),
    ("preflight", "refused", lambda w: setattr(w, "flow_state", "paused"), "is paused, not running"),
    ("preflight", "refused", _stranger("target"), "is alive at cloud"),
    ("preflight", "refused", lambda w: w.offsets["target"].update({GROUP: {target_of(TopicPartition("clicks", 0)): 3}}),
     "has offsets at cloud already"),
    ("preflight", "refused", lambda w: w.offsets["source"][GROUP].update({TopicPartition("other", 0): 1}),
     "also reads other"),
    ("preflight", "refused", lambda w: w.nobody.add(PRODUCER), "migration.applications.checkout.http"),
    ("lag_gate", "refused", _expire, "orders-0: source offsets 12 to 16 expired before they were copied"),
    ("drain", "rolled_back", _at(StopApplication, _expire, nth=2), "expired before they were copied"),
    ("lag_gate", "refused", _run_ahead, "copied nothing for 4 s and misses clicks-0, orders-0, orders-1"),
    ("history_proof", "refused", _verdict("different", 2), "2 unproven"),
    ("history_proof", "refused", _verdict("incomplete", 0), "verdict incomplete"),
    ("history_proof", "refused", _verdict("proven", 1), "1 unproven"),
    ("stop_consumers", "rolled_back", _failing(StopApplication, "stop_consumers"), "no"),
    ("translate_offsets", "rolled_back", _at(StopApplication, _run_ahead), "to go"),
    ("commit_offsets", "rolled_back", _at(LookAtGroup, _stranger("target"), step="commit_offsets"), "never reset"),
    ("commit_offsets", "rolled_back", _at(LookAtGroup, _stranger("source"), step="commit_offsets"), "this group id"),
    ("commit_offsets", "rolled_back", _failing(CommitOffsets, "commit_offsets"), "no"),
    ("landing_test", "rolled_back", _at(CommitOffsets, _corrupt), "landing test"),
    ("start_consumers", "rolled_back", _failing(StartApplication, "start_consumers"), "no"),
    ("fence_producers", "rolled_back", _failing(StopApplication, "fence_producers"), "no"),
    ("standstill", "rolled_back", _at(LookAtLogs, _straggle, nth=4, step="standstill"), "orders-1 by +1"),
    ("barrier", "rolled_back", _at(LookAtLogs, _straggle, step="barrier"), "orders-1 by +1"),
    ("barrier", "rolled_back",
     _at(LookAtLogs, lambda w: w.open_transaction.update({TopicPartition("orders", 0): 1}), step="barrier"),
     "open transactions on orders-0"),
    ("drain", "rolled_back", _at(StopApplication, lambda w: (_no_copying(w), _straggle(w)), nth=2), "copied nothing"),
    ("tail_proof", "rolled_back", _at(LookAtLogs, _verdict("different", 3), step="drain"), "3 unproven"),
    ("tail_proof", "rolled_back", _at(LookAtLogs, _straggle, step="tail_proof"), "straggler"),
    ("point_of_no_return", "rolled_back", _at(LookAtLogs, _straggle, step="point_of_no_return"), "straggler"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "state", "spoil", "words"), REFUSALS)
def test_a_refusal_takes_everything_back(step: str, state: str, spoil: Spoil, words: str) -> None:
    world = World()
    spoil(world)
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == (step, state), result
    assert words in result.reason
    world.hook = lambda _action: None
    world.nobody.clear()
    world.starts.clear()
    world.verdict, world.copying, world.flow_state = None, True, "running"
    world.offsets["source"][GROUP].pop(TopicPartition("other", 0), None)
    world.strangers = {"source": 0, "target": 0}
    if state == "refused":
        world.offsets["target"].clear()
    if step != "landing_test":  # there the spoilt target is part of the story
        assert_back(world, result, state)


def test_a_foreign_writer_on_the_target_is_seen_before_the_switch() -> None:
    world = World()
    _at(LookAtLogs, _foreign, step="point_of_no_return")(world)
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == ("point_of_no_return", "rolled_back")
    assert "something else writes to the target" in result.reason


def test_approval_denied() -> None:
    world = World()
    result = a_migration(world, FakeLog(), approve=lambda ask: ApprovalSeen(0, False, "ann", "not today")).run()
    assert "not today" in result.reason
    assert_back(world, result, "refused")


def test_approvals_show_what_was_seen() -> None:
    asked: list[AskApproval] = []

    def approve(ask: AskApproval) -> ApprovalSeen:
        asked.append(ask)
        return ApprovalSeen(0, True, "ann")

    a_migration(World(), FakeLog(), approve=approve).run()
    assert [ask.gate for ask in asked] == ["approval"]
    assert asked[0].evidence["history_proof"]["unproven"] == 0
    assert "lag_records" in asked[0].evidence["lag_gate"]


def test_after_the_point_of_no_return_nothing_is_switched_back() -> None:
    """The canary never comes: the producer stays at the target, the run stays unfinished, --resume goes on."""
    world, log = World(), FakeLog()
    world.hook = lambda action: (
        setattr(world.apps[PRODUCER], "running", False)
        if isinstance(action, LookAtLogs) and world.apps[PRODUCER].side == "target"
        else None
    )
    result = a_migration(world, log).run()
    assert (result.state, result.step) == ("stopped", "canary")
    assert "no way back in this version" in result.reason
    assert world.apps[PRODUCER].side == "target"
    assert GROUP in world.offsets["target"]
    world.hook = lambda _action: None
    world.apps[PRODUCER].running = True
    assert_moved(world, a_migration(world, log, "second", resume=True).run())


def test_writes_to_the_source_after_the_switch_are_named_as_stranded() -> None:
    world = World()
    _at(StartApplication, _straggle, nth=2)(world)
    result = a_migration(world, FakeLog()).run()
    assert (result.state, result.step) == ("stopped", "canary")
    assert "stranded" in result.reason
    assert "orders-1" in result.reason


def test_a_live_group_on_the_target_is_not_touched_by_the_rollback() -> None:
    world = World()
    theirs = {target_of(TopicPartition("clicks", 0)): 7}

    def intrude(world: World) -> None:
        world.strangers["target"] = 1
        world.offsets["target"][GROUP] = dict(theirs)

    _at(LookAtGroup, intrude, step="commit_offsets")(world)
    result = a_migration(world, FakeLog()).run()
    assert result.state == "rolled_back"
    assert world.offsets["target"][GROUP] == theirs


def test_a_group_alive_on_the_target_during_rollback_leaves_the_run_unfinished() -> None:
    world, log = World(), FakeLog()

    def straggle_and_intrude(world: World) -> None:
        _straggle(world)
        world.strangers["target"] = 1

    _at(LookAtLogs, straggle_and_intrude, nth=2, step="standstill")(world)
    result = a_migration(world, log).run()
    assert result.state == "rollback_incomplete"
    assert "Still to do" in result.reason
    assert world.apps[PRODUCER].side == "source"
    assert world.apps[PRODUCER].running  # the fence was lifted first
    world.strangers["target"] = 0
    world.hook = lambda _action: None
    assert_back(world, a_migration(world, log, "second", resume=True).run())


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_without_an_answer_is_taken_back_too(landed: bool) -> None:
    world = World()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CommitOffsets) and action.side == "target":
            if landed:
                world.offsets["target"][GROUP] = dict(action.offsets)
            return Failed(int(world.now * 1000), "the connection broke", transient=False)
        return None

    world.hook = hook
    result = a_migration(world, FakeLog()).run()
    assert result.step == "commit_offsets"
    assert_back(world, result)


def test_offsets_of_somebody_else_stay_when_our_commit_failed() -> None:
    world = World()
    theirs = {target_of(TopicPartition("clicks", 0)): 1}

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CommitOffsets) and action.side == "target":
            world.offsets["target"][GROUP] = dict(theirs)
            world.strangers["target"] = 1
        return None

    world.hook = hook
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == ("commit_offsets", "rolled_back")
    assert world.offsets["target"][GROUP] == theirs
    assert any("not ours: they stay" in line for line in world.said)


def test_silence_is_asked_again_and_then_refused() -> None:
    world = World()
    silent_until = world.now + 2.5

    def hook(_action: Action) -> Observation | None:
        return Failed(int(world.now * 1000), "no answer") if world.now < silent_until else None

    world.hook = hook
    assert_moved(world, a_migration(world, FakeLog()).run())
    world, silent_until = World(), 1e9
    world.hook = hook
    result = a_migration(world, FakeLog()).run()
    assert (result.state, result.step) == ("refused", "preflight")
    assert "asked again for 3 s" in result.reason


def test_a_group_that_never_committed_is_refused_by_name_unless_the_policy_says_where() -> None:
    world = World()
    del world.offsets["source"][GROUP][TopicPartition("clicks", 0)]
    world.apps[GROUP].running = False
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == ("translate_offsets", "rolled_back")
    assert "never committed clicks-0" in result.reason


def test_an_application_that_did_not_run_is_not_started_by_a_rollback() -> None:
    world = World()
    world.apps[GROUP].running = False
    _at(LookAtLogs, _straggle, nth=2, step="standstill")(world)
    assert a_migration(world, FakeLog()).run().state == "rolled_back"
    assert not world.apps[GROUP].running
    assert world.apps[PRODUCER].running


def test_a_rollback_undoes_in_exact_inverse_order() -> None:
    world = World()
    deeds: list[str] = []

    def hook(action: Action) -> Observation | None:
        if isinstance(action, StopApplication | StartApplication | CommitOffsets | ForgetGroup):
            deeds.append(f"{type(action).__name__} {getattr(action, 'name', '')}{getattr(action, 'side', '')}")
        if isinstance(action, LookAtLogs) and world.said and world.said[-1].startswith("barrier: begin"):
            _straggle(world)
        return None

    world.hook = hook
    a_migration(world, FakeLog()).run()
    assert deeds == [
        f"StopApplication {GROUP}",
        "CommitOffsets target",
        f"StartApplication {GROUP}target",
        f"StopApplication {PRODUCER}",
        # and back
        f"StartApplication {PRODUCER}source",
        f"StopApplication {GROUP}",
        "CommitOffsets source",
        "ForgetGroup target",
        f"StartApplication {GROUP}source",
    ]


@pytest.mark.parametrize(
    ("wave", "words"),
    [
        ({"strategy": "fenced"}, "strategy fenced"),
        ({"strategy": "producers_first"}, "consumers_first only"),
        ({"gates_before": (Verify("L2"),)}, r"gates\.before: verify asks for level L2.*use level L1"),
        ({"gates_after": (Verify("L1"), Verify("L0"))}, r"gates\.after: verify asks for level L0.*use level L1"),
    ],
)
def test_what_cannot_be_run_yet_is_said(wave: dict[str, Any], words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        a_migration(World(), FakeLog(), plan=a_plan(**wave))


@pytest.mark.parametrize(
    ("copied", "start", "end", "missing"),
    [
        (None, 0, 0, {}),  # never held anything
        (None, 7, 7, {}),  # empty before there was a flow
        (None, 7, 9, {PLACE: 2}),
        (7, 7, 7, {}),
        (7, 3, 9, {PLACE: 2}),
        (9, 3, 9, {}),
    ],
)
def test_what_a_flow_misses(copied: int | None, start: int, end: int, missing: dict[TopicPartition, int]) -> None:
    assert _behind(copied, start, end) == missing


@pytest.mark.parametrize(("copied", "start", "end"), [(4, 7, 7), (4, 7, 9), (0, 1, 1)])
def test_what_expired_before_it_was_copied_is_refused(copied: int, start: int, end: int) -> None:
    with pytest.raises(Refused, match=f"clicks-0: source offsets {copied} to {start - 1} expired") as refused:
        _behind(copied, start, end)
    assert refused.value.seen == {"expired": {"clicks-0": start - copied}}


def _behind(copied: int | None, start: int, end: int) -> dict[TopicPartition, int]:
    plan = a_plan()
    assert plan.migration is not None
    ground = Ground(plan.flows[0], plan.migration.waves[0], Policy())
    held = {} if copied is None else {PLACE: CopiedPartition(OffsetMap((Run(0, copied),)), 0)}
    return ground.behind(held, LogsSeen(0, {PLACE: start}, {PLACE: end}, {PLACE: end}), {PLACE: end})
