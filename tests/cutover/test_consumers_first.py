"""The migration end to end in a fake world: clean, refused at every gate, and always exact."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import assert_back, assert_moved, lost_and_repeated
from tests.cutover.spoils import (
    Spoil,
    carried,
    carried_again,
    committed_by_a_stranger,
    corrupt,
    expire,
    failing,
    foreign,
    no_copying,
    run_ahead,
    straggle,
    stranger,
    upon,
    verdict,
)
from tests.cutover.world import GROUP, PRODUCER, World, a_migration, a_plan, target_of
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    AskApproval,
    CommitOffsets,
    ForgetGroup,
    ReadCluster,
    ReadGroup,
    ReadLogs,
    StartApplication,
    StopApplication,
)
from watershed.cutover.errors import NotSupported, Refused
from watershed.cutover.migration_step_order import STRATEGY_STEPS, describe_way_back, list_strategy_steps
from watershed.cutover.observations import ActionFailed, ApprovalAnswer, Observation, ObservedLogs
from watershed.cutover.policy import WavePolicy
from watershed.cutover.run_context import RunContext
from watershed.cutover.step_definitions import STEPS
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.topology.migration_waves import ProofGate

PLACE = TopicPartition("clicks", 0)


def test_runs_through_clean() -> None:
    world = World()
    result = a_migration(world, FakeLog()).run()
    assert_moved(world, result)
    assert any("POINT OF NO RETURN" in line for line in world.said)
    assert world.flow_state == "stopped"


def test_a_proof_with_repeats_that_the_file_allows_is_a_proof() -> None:
    world = World()
    verdict("repeated", 0)(world)
    assert_moved(world, a_migration(world, FakeLog()).run())


def test_a_flow_that_carries_more_than_the_wave_goes_on_without_what_moved() -> None:
    world, log = World(), FakeLog()
    world.new_topics = {"later": 1}
    assert_moved(world, a_migration(world, log, plan=a_plan(topics=("later",))).run())
    assert world.flow_state == "running"
    assert world.retired[None] == {"orders", "clicks"}
    assert any("has let go of clicks, orders and goes on with later" in line for line in world.said)


def test_a_group_whose_positions_the_flow_keeps_at_the_target_moves() -> None:
    world = World()
    carried(world)
    assert_moved(world, a_migration(world, FakeLog()).run())


def test_every_step_of_a_strategy_is_in_the_table_and_says_whether_it_is_undone() -> None:
    assert {name for order in STRATEGY_STEPS.values() for name in order} <= set(STEPS)
    assert [step.name for step in list_strategy_steps(WavePolicy()) if step.point_of_no_return] == [
        "point_of_no_return"
    ]
    for strategy in STRATEGY_STEPS:
        policy = WavePolicy(strategy=strategy, reverse="back")
        steps = list_strategy_steps(policy)
        crossed = next((at for at, step in enumerate(steps) if step.point_of_no_return), len(steps))
        assert (crossed == len(steps)) == (strategy == "consumers_last"), strategy
        for step in steps[:crossed]:
            assert (step.undo is None) == (STEPS[step.name].undo is None), step.name
        assert all(step.undo == describe_way_back(policy) for step in steps[crossed + 1 :]), strategy


# Each row: what goes wrong in the world, and at which step. Before the first deed the result is `refused`.
REFUSALS: list[tuple[str, str, Spoil, str]] = [
    ("preflight", "refused", failing(ReadCluster, "preflight", "cluster onprem does not answer"), "does not answer"),
    ("preflight", "refused", lambda w: setattr(w, "flow_state", "paused"), "is paused, not running"),
    ("preflight", "refused", stranger("target"), "is alive at cloud"),
    ("preflight", "refused", lambda w: w.offsets["target"].update({GROUP: {target_of(TopicPartition("clicks", 0)): 3}}),
     f"`topology offsets reset-group FILE --flow onprem-to-cloud --group {GROUP}` replaces them"),
    ("preflight", "refused", lambda w: w.offsets["source"][GROUP].update({TopicPartition("other", 0): 1}),
     "also reads other"),
    ("preflight", "refused", lambda w: w.nobody.add(PRODUCER), "migration.applications.checkout (docs"),
    ("lag_gate", "refused", expire, "orders-0: source offsets 12 to 16 expired before they were copied"),
    ("drain", "rolled_back", upon(StopApplication, expire, nth=2), "expired before they were copied"),
    ("lag_gate", "refused", run_ahead, "copied nothing for 4 s and misses clicks-0, orders-0, orders-1"),
    ("history_proof", "refused", verdict("different", 2), "2 unproven"),
    ("history_proof", "refused", verdict("incomplete", 0), "verdict incomplete"),
    ("history_proof", "refused", verdict("proven", 1), "1 unproven"),
    ("stop_consumers", "rolled_back", failing(StopApplication, "stop_consumers"), "no"),
    ("translate_offsets", "rolled_back", upon(StopApplication, run_ahead), "to go"),
    ("commit_offsets", "rolled_back", upon(ReadGroup, stranger("target"), step="commit_offsets"), "never reset"),
    ("commit_offsets", "rolled_back", upon(ReadGroup, stranger("source"), step="commit_offsets"), "this group id"),
    ("commit_offsets", "rolled_back", failing(CommitOffsets, "commit_offsets"), "no"),
    ("landing_test", "rolled_back", upon(CommitOffsets, corrupt), "landing test"),
    ("start_consumers", "rolled_back", failing(StartApplication, "start_consumers"), "no"),
    ("fence_producers", "rolled_back", failing(StopApplication, "fence_producers"), "no"),
    ("standstill", "rolled_back", upon(ReadLogs, straggle, nth=11, step="standstill"), "orders-1 by +1"),
    ("barrier", "rolled_back", upon(ReadLogs, straggle, step="barrier"), "orders-1 by +1"),
    ("barrier", "rolled_back",
     upon(ReadLogs, lambda w: w.open_transaction.update({TopicPartition("orders", 0): 1}), step="barrier"),
     "open transactions on orders-0"),
    ("drain", "rolled_back", upon(StopApplication, lambda w: (no_copying(w), straggle(w)), nth=2), "copied nothing"),
    ("tail_proof", "rolled_back", upon(ReadLogs, verdict("different", 3), step="drain"), "3 unproven"),
    ("tail_proof", "rolled_back", upon(ReadLogs, straggle, step="tail_proof"), "straggler"),
    ("point_of_no_return", "rolled_back", upon(ReadLogs, straggle, step="point_of_no_return"), "straggler"),
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


def test_what_a_slow_worker_of_the_flow_carried_behind_the_commit_is_committed_again() -> None:
    world = World()
    upon(ReadGroup, carried_again, step="start_consumers")(world)
    result = a_migration(world, FakeLog()).run()
    assert_moved(world, result)
    assert any("a slow worker of flow" in line and "are committed again" in line for line in world.said)


def test_what_a_stranger_committed_behind_the_commit_ends_the_run() -> None:
    """Where it put the group counts on the way back, too: some records are read again, none is lost."""
    world = World()
    upon(ReadGroup, committed_by_a_stranger, step="start_consumers")(world)
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == ("start_consumers", "rolled_back")
    assert "something else commits for this group id" in result.reason
    assert GROUP not in world.offsets["target"]
    world.tick()
    lost, repeated = lost_and_repeated(world)
    assert lost == 0 < repeated


def test_a_group_that_moved_at_the_source_meanwhile_is_not_committed_again() -> None:
    """Its own records there are the newer truth: the run goes back to them."""
    world = World()

    def spoil(found: World) -> None:
        carried_again(found)
        found.offsets["source"][GROUP][PLACE] += 1

    upon(ReadGroup, spoil, step="start_consumers")(world)
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == ("start_consumers", "rolled_back")
    assert "something still reads there under this group id" in result.reason


def test_a_foreign_writer_on_the_target_is_seen_before_the_switch() -> None:
    world = World()
    upon(ReadLogs, foreign, step="point_of_no_return")(world)
    result = a_migration(world, FakeLog()).run()
    assert (result.step, result.state) == ("point_of_no_return", "rolled_back")
    assert "something else writes to the target" in result.reason


def test_approval_denied() -> None:
    world = World()
    result = a_migration(world, FakeLog(), approve=lambda ask: ApprovalAnswer(0, False, "ann", "not today")).run()
    assert "not today" in result.reason
    assert_back(world, result, "refused")


def test_approvals_show_what_was_seen() -> None:
    asked: list[AskApproval] = []

    def approve(ask: AskApproval) -> ApprovalAnswer:
        asked.append(ask)
        return ApprovalAnswer(0, True, "ann")

    a_migration(World(), FakeLog(), approve=approve).run()
    assert [ask.gate for ask in asked] == ["approval"]
    assert asked[0].evidence["history_proof"]["unproven"] == 0
    assert "lag_records" in asked[0].evidence["lag_gate"]


def test_after_the_point_of_no_return_nothing_is_switched_back() -> None:
    """The canary never comes: the producer stays at the target, the run stays unfinished, --resume goes on."""
    world, log = World(), FakeLog()
    world.hook = lambda action: (
        setattr(world.apps[PRODUCER], "running", False)
        if isinstance(action, ReadLogs) and world.apps[PRODUCER].side == "target"
        else None
    )
    result = a_migration(world, log).run()
    assert (result.state, result.step) == ("stopped", "canary")
    assert "no way back without a reverse flow" in result.reason
    assert world.apps[PRODUCER].side == "target"
    assert GROUP in world.offsets["target"]
    world.hook = lambda _action: None
    world.apps[PRODUCER].running = True
    assert_moved(world, a_migration(world, log, "second", resume=True).run())


def test_writes_to_the_source_after_the_switch_are_named_as_stranded() -> None:
    world = World()
    upon(StartApplication, straggle, nth=2)(world)
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

    upon(ReadGroup, intrude, step="commit_offsets")(world)
    result = a_migration(world, FakeLog()).run()
    assert result.state == "rolled_back"
    assert world.offsets["target"][GROUP] == theirs


def test_a_group_alive_on_the_target_during_rollback_leaves_the_run_unfinished() -> None:
    world, log = World(), FakeLog()

    def straggle_and_intrude(world: World) -> None:
        straggle(world)
        world.strangers["target"] = 1

    upon(ReadLogs, straggle_and_intrude, nth=11, step="standstill")(world)
    result = a_migration(world, log).run()
    assert result.state == "rollback_incomplete"
    assert "Still to do" in result.reason
    assert world.apps[PRODUCER].side == "source"
    assert world.apps[PRODUCER].running  # the fence was lifted first
    world.strangers["target"] = 0
    world.hook = lambda _action: None
    assert_back(world, a_migration(world, log, "second", resume=True).run())


def test_offsets_of_a_group_that_somebody_joined_are_not_taken_back() -> None:
    """Its positions at the source stay, too: the member at the target goes on from where they are."""
    world = World()
    committed: list[CommitOffsets] = []
    upon(ReadLogs, straggle, nth=11, step="standstill")(world)
    fails = world.hook

    def hook(action: Action) -> Observation | None:
        if isinstance(action, ReadGroup) and any("undo" in line and "commit" in line for line in world.said[-1:]):
            world.strangers["target"] = 1
        if isinstance(action, CommitOffsets) and action.side == "source":
            committed.append(action)
        return fails(action)

    world.hook = hook
    result = a_migration(world, FakeLog()).run()
    assert result.state == "rollback_incomplete"
    assert any("its offsets cannot be taken back. Stop it" in line for line in world.said)
    assert committed == []
    assert GROUP in world.offsets["target"]


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_without_an_answer_is_taken_back_too(landed: bool) -> None:
    world = World()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CommitOffsets) and action.side == "target":
            if landed:
                world.offsets["target"][GROUP] = dict(action.offsets)
            return ActionFailed(int(world.now * 1000), "the connection broke", transient=False)
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
        return ActionFailed(int(world.now * 1000), "no answer") if world.now < silent_until else None

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
    upon(ReadLogs, straggle, nth=11, step="standstill")(world)
    assert a_migration(world, FakeLog()).run().state == "rolled_back"
    assert not world.apps[GROUP].running
    assert world.apps[PRODUCER].running


def test_a_rollback_undoes_in_exact_inverse_order() -> None:
    world = World()
    deeds: list[str] = []

    def hook(action: Action) -> Observation | None:
        if isinstance(action, StopApplication | StartApplication | CommitOffsets | ForgetGroup):
            deeds.append(f"{type(action).__name__} {getattr(action, 'name', '')}{getattr(action, 'side', '')}")
        if isinstance(action, ReadLogs) and world.said and world.said[-1].startswith("barrier: begin"):
            straggle(world)
        return None

    world.hook = hook
    a_migration(world, FakeLog()).run()
    assert deeds == [
        f"StopApplication {GROUP}source",
        "CommitOffsets target",
        f"StartApplication {GROUP}target",
        f"StopApplication {PRODUCER}source",
        # and back
        f"StartApplication {PRODUCER}source",
        f"StopApplication {GROUP}target",
        "CommitOffsets source",
        "ForgetGroup target",
        f"StartApplication {GROUP}source",
    ]


@pytest.mark.parametrize(
    ("wave", "words"),
    [
        ({"gates_before": (ProofGate("L0"),)}, r"gates\.before: verify asks for level L0.*use L1, L2 or L3"),
        (
            {"gates_after": (ProofGate("L1"), ProofGate("L0"))},
            r"gates\.after: verify asks for level L0.*use L1, L2 or L3",
        ),
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
    context = RunContext(plan.flows[0], plan.migration.waves[0], WavePolicy())
    held = {} if copied is None else {PLACE: CopiedPartition(OffsetMap((OffsetRun(0, copied),)), 0)}
    return context.behind(held, ObservedLogs(0, {PLACE: start}, {PLACE: end}, {PLACE: end}), {PLACE: end})
