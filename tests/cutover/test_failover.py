"""A failover in memory: what is lost is what was declared, nothing of it is asked of the source, and crashes change
nothing of that."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.failover_world import FailoverWorld, a_dead_source, a_failover
from tests.cutover.fake_log import Crash, FakeLog, list_crash_points
from tests.cutover.world import A_RIGHT, GROUP, POLICY, PRODUCER, REVERSE, a_migration, a_plan, target_of
from tests.cutover.world_back import back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ReadApplication, ReadLastSeenSource, StartApplication, StopApplication
from watershed.cutover.driver import RunDriver, approve_all
from watershed.cutover.errors import Locked, NotSupported
from watershed.cutover.failover.failover_plan import join_waves
from watershed.cutover.journal.hash_chain import JournalChain, find_step_outcome
from watershed.cutover.observations import ActionFailed, ApprovalAnswer, LastSeenSource, ObservedApplication
from watershed.cutover.run_abandonment import abandon_run
from watershed.cutover.step_runner import RunResult
from watershed.topology.migration_waves import GroupPolicy, Wave
from watershed.topology.plan import seal_plan

ACCEPTING = replace(POLICY, accept_loss=1_000)
PLACE = TopicPartition("orders", 0)


def outcome(log: FakeLog, step: str) -> dict[str, Any]:
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    found = find_step_outcome(chain.entries, step)
    assert found is not None, step
    return found[0]


def assert_promoted(world: FailoverWorld, log: FakeLog, result: RunResult) -> None:
    assert result.state == "done", result
    assert world.asked == []
    assert (world.apps[PRODUCER].side, world.apps[GROUP].side) == ("target", "target")
    assert (world.flow_state, world.retired[None]) == ("stopped", {"orders", "clicks"})
    lost = set(world.lost)
    declared = outcome(log, "cut_workers_off")["loss"]
    assert len(lost) <= declared["offsets"]
    assert declared["offsets"] == sum(len(log) - world.position[p] for p, log in world.logs["source"].items())
    for _ in range(3):
        world.tick()
    world.settle()
    counts = Counter(world.processed)
    everything = {r for side in world.logs.values() for log in side.values() for r in log if r is not None}
    assert everything - set(counts) <= lost  # of the lost ones, some were read at the source
    assert [record for record, times in counts.items() if times > 1] == []


def test_what_is_lost_is_what_was_declared_and_groups_go_on_where_they_were() -> None:
    world, log = a_dead_source(), FakeLog()
    assert world.lost
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert_promoted(world, log, result)
    told = outcome(log, "declare_loss")["told"]
    assert "that the source was seen to hold are not copied" in told
    assert "if producers reached the source until now" in told


def test_the_evidence_has_the_loss_and_where_groups_went_on(tmp_path: Path) -> None:
    world, log = a_dead_source(), FakeLog()
    a_failover(world, log, policy=ACCEPTING, evidence=tmp_path).run()
    document = json.loads((tmp_path / "evidence.json").read_text())
    assert (document["kind"], document["state"]) == ("failover", "done")
    assert document["loss"]["offsets"] == outcome(log, "cut_workers_off")["loss"]["offsets"] > 0
    assert document["groups"][GROUP]["translated"] == outcome(log, "place_groups")["groups"][GROUP]["target"]
    assert "Declared and accepted as missing" in (tmp_path / "evidence.html").read_text()


def test_a_source_that_answers_is_refused_and_nothing_is_changed() -> None:
    world, log = FailoverWorld(), FakeLog()
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert (result.state, result.step) == ("refused", "source_gone")
    assert "use `topology migrate`" in result.reason
    assert world.flow_state == "running"
    assert world.apps[PRODUCER].side == "source"


def test_a_source_that_answers_is_fenced_when_the_operator_goes_on() -> None:
    world, log = FailoverWorld(), FakeLog()
    policy = replace(ACCEPTING, though_source_answers=True)
    failover = a_failover(world, log, policy=policy)
    assert "fence_source" in [step.name for step in failover.steps]
    assert failover.run(until_step="fence_source").state == "paused"
    assert not world.apps[PRODUCER].running
    assert failover.run().state == "done"


def test_a_source_that_workers_still_see_is_alive_though_it_does_not_answer_here() -> None:
    world, log = a_dead_source(), FakeLog()

    def seeing(action: Any) -> Any:
        if isinstance(action, ReadLastSeenSource):
            for place, sight in world.sights.items():
                world.sights[place] = replace(sight, seen_ms=world.wall_ms)
        return None

    world.hook = seeing
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert (result.state, result.step) == ("refused", "source_gone")
    assert "workers of onprem-to-cloud have seen it" in result.reason
    assert world.flow_state == "running"


def test_a_source_that_comes_back_before_the_promotion_stops_it() -> None:
    world, log = a_dead_source(), FakeLog()
    first = a_failover(world, log, policy=ACCEPTING, run_id="r1")
    assert first.run(until_step="accept_loss").state == "paused"
    world.alive_again, world.dead = True, False
    result = first.run()
    assert (result.state, result.step) == ("rolled_back", "promote")
    assert (world.flow_state, world.retired[None]) == ("running", set())


def test_a_loss_is_never_accepted_by_itself() -> None:
    world, log = a_dead_source(), FakeLog()
    result = a_failover(world, log, approve=approve_all).run()
    assert (result.state, result.step) == ("rolled_back", "accept_loss")
    assert "--accept-loss" in result.reason
    assert (world.flow_state, world.retired[None]) == ("running", set())


def test_a_refused_failover_answers_no_breach() -> None:
    failover = a_failover(a_dead_source(), FakeLog(), approve=approve_all)
    failover.run()
    [started, _] = [each for each in failover.journal.chain.entries if each.deed == "StartFlow"]
    assert (started.step, started.observation["answers_breach"]) == ("undo_stop_forwarding", False)


def test_a_person_is_shown_the_loss() -> None:
    world, log, asked = a_dead_source(), FakeLog(), []

    def person(ask: Any) -> ApprovalAnswer:
        asked.append(ask)
        return ApprovalAnswer(0, granted=True, by="ann, in a terminal")

    assert_promoted(world, log, a_failover(world, log, approve=person).run())
    (ask,) = asked
    assert ask.gate == "accept_loss"
    assert "give up what is missing: at most" in ask.question
    assert ask.evidence["declare_loss"]["loss"]["offsets"] > 0


def test_more_than_was_accepted_beforehand_is_refused() -> None:
    world, log = a_dead_source(), FakeLog()
    result = a_failover(world, log, policy=replace(POLICY, accept_loss=1)).run()
    assert (result.state, result.step) == ("rolled_back", "accept_loss")
    assert "more than the 1 that were accepted" in result.reason


def test_a_worker_that_wakes_up_writes_nothing_behind_the_applications() -> None:
    world, log = a_dead_source(), FakeLog()
    world.zombie = {target_of(PLACE): ["a late record"]}
    failover = a_failover(world, log, policy=ACCEPTING, run_id="r1")
    failover.run(until_step="cut_workers_off")
    world.awake = True
    assert_promoted(world, log, failover.run())
    assert "a late record" not in world.logs["target"][target_of(PLACE)]


def test_without_the_right_to_fence_workers_nothing_is_begun() -> None:
    world, log = a_dead_source(), FakeLog()
    world.able = "ALTER on the cluster is missing"
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert (result.state, result.step) == ("refused", "failover_preflight")
    assert "ALTER" in result.reason


def test_a_partition_that_no_worker_ever_saw_is_told_as_unknown() -> None:
    world, log = a_dead_source(), FakeLog()
    del world.sights[PLACE]
    refused = a_failover(world, FakeLog(), policy=ACCEPTING).run()
    assert (refused.state, refused.step) == ("rolled_back", "accept_loss")
    assert "--accept-loss any" in refused.reason
    assert a_failover(world, log, policy=replace(POLICY, accept_loss=sys.maxsize)).run().state == "done"
    declared = outcome(log, "declare_loss")
    assert declared["loss"]["unseen"] == ["orders-0"]
    assert declared["loss"]["complete_ms"] is None
    assert "nothing is known of orders-0" in declared["told"]


@pytest.mark.parametrize("way", ["earliest", "latest"])
def test_a_group_that_was_not_carried_needs_a_policy(way: str) -> None:
    world, log = a_dead_source(), FakeLog()
    world.offsets["target"].clear()
    world.kept.clear()
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert (result.state, result.step) == ("refused", "failover_preflight")
    assert "`sync.groups` did not carry it there" in result.reason
    result = a_failover(world, log, policy=replace(ACCEPTING, uncommitted={GROUP: way})).run()
    assert result.state == "done", result
    placed = outcome(log, "place_groups")["groups"][GROUP]["chosen"]["dc.orders"]["0"]
    assert placed == (0 if way == "earliest" else world.marks[target_of(PLACE)] + 1)


def test_positions_that_somebody_else_committed_are_left_alone() -> None:
    world, log = a_dead_source(), FakeLog()
    world.kept.clear()
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert (result.state, result.step) == ("refused", "failover_preflight")
    assert "did not bring there" in result.reason


def test_applications_that_do_not_answer_are_noted_and_started() -> None:
    world, log = a_dead_source(), FakeLog()

    def silent(action: Any) -> Any:
        return (
            ActionFailed(0, f"{action.name} does not answer", transient=False)
            if isinstance(action, StopApplication)
            else None
        )

    world.hook = silent
    result = a_failover(world, log, policy=ACCEPTING).run()
    assert_promoted(world, log, result)
    assert set(outcome(log, "stop_at_source")["silent"]) == {GROUP, PRODUCER}


def test_what_preflight_could_not_read_is_read_before_the_application_is_stopped() -> None:
    """Kubernetes did not answer for a moment. Behind the stop nobody could tell how many replicas there were."""
    world, log, former, given = a_dead_source(), FakeLog(), {"replicas": {"deployment/x": 3}}, []
    answers: list[Any] = [ActionFailed(0, "the API server answered 503", transient=False)]

    def read(action: Any) -> Any:
        if isinstance(action, ReadApplication) and action.name == PRODUCER and action.told is None:
            return answers.pop() if answers else ObservedApplication(0, PRODUCER, "running", None, former=former)
        if isinstance(action, StartApplication) and action.name == PRODUCER:
            given.append(action.former)
        return None

    world.hook = read
    assert_promoted(world, log, a_failover(world, log, policy=ACCEPTING).run())
    assert outcome(log, "stop_at_source")["former"] == {PRODUCER: former}
    assert given[0] == given[-1] == former


def test_rights_that_were_held_back_are_given_before_producers_start() -> None:
    world, log = a_dead_source(), FakeLog()
    world.withheld = (A_RIGHT,)
    assert_promoted(world, log, a_failover(world, log, policy=ACCEPTING).run())
    assert world.given == [A_RIGHT]


def test_several_waves_are_promoted_together() -> None:
    waves = (Wave("one", ("clicks",)), Wave("two", ("orders",), (GROUP,), (PRODUCER,)), Wave("three", ("x",)))
    plan = a_plan(waves=waves, topics=("x",))
    failover = a_failover(a_dead_source(), FakeLog(), plan=plan, policy=ACCEPTING)
    assert (failover.run_plan.wave.name, failover.run_plan.wave.topics) == ("one+two+three", ("clicks", "orders", "x"))
    assert join_waves(plan, None, ("three",)).name == "one+two"
    assert join_waves(plan, "one+two").topics == ("clicks", "orders")
    assert join_waves(plan, "two").name == "two"
    with pytest.raises(NotSupported, match="has moved to the target already"):
        join_waves(plan, None, ("one", "two", "three"))


def test_what_has_moved_is_not_promoted_again() -> None:
    world, log = a_dead_source(), FakeLog()
    assert a_failover(world, log, policy=ACCEPTING).run().state == "done"
    with pytest.raises(NotSupported, match="has moved to the target already"):
        a_failover(world, log, policy=ACCEPTING)


def test_a_migration_that_was_under_way_is_ended() -> None:
    world, log = FailoverWorld(), FakeLog()
    quick = replace(POLICY, consumer_lag=None)
    a_migration(world, log, plan=back_plan(), policy=quick, run_id="m1").run(until_step="landing_test")
    world.die()
    result = a_failover(world, log, policy=ACCEPTING, run_id="f1").run()
    assert_promoted(world, log, result)
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    ended = chain.run("m1")[-1].observation
    assert (ended["state"], chain.unfinished()) == ("abandoned", [])
    assert "promoted by run f1" in ended["reason"]


@pytest.mark.parametrize("until", ["point_of_no_return", "switch_producers", "retire_topics", "drain_consumers"])
def test_a_migration_between_its_switch_and_its_consumers_is_told_as_it_is(until: str) -> None:
    """Not as moved: its consumers are still where the source was."""
    world, log, plan = FailoverWorld(), FakeLog(), back_plan(strategy="producers_first")
    policy = replace(POLICY, strategy="producers_first", reverse=REVERSE, consumer_lag=None)
    a_migration(world, log, plan=plan, policy=policy, run_id="m1").run(until_step=until)
    world.die()
    if until == "point_of_no_return":  # nothing writes at the target yet
        assert_promoted(world, log, a_failover(world, log, plan=plan, policy=ACCEPTING).run())
        return
    with pytest.raises(NotSupported, match=r"run m1 has switched the producers .* consumers \(billing\) are still at"):
        a_failover(world, log, plan=plan, policy=ACCEPTING)
    assert world.apps[GROUP].side == "source"


def test_a_migration_that_was_under_way_holds_its_lock_again_when_the_failover_is_refused() -> None:
    world, log = FailoverWorld(), FakeLog()
    a_migration(world, log, plan=back_plan(), run_id="m1").run(until_step="approval")
    result = a_failover(world, log, policy=ACCEPTING, run_id="f1").run()
    assert (result.state, result.step) == ("refused", "source_gone")
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert chain.unfinished()[0].run == "m1"


def test_the_file_s_policy_of_a_group_counts() -> None:
    plan = a_plan()
    assert plan.migration is not None
    groups = {GROUP: GroupPolicy(uncommitted="earliest")}
    plan = seal_plan(replace(plan, migration=replace(plan.migration, groups=groups)))
    world = a_dead_source()
    failover = a_failover(world, FakeLog(), plan=plan, policy=None)
    assert failover.run_plan.policy.uncommitted == {GROUP: "earliest"}


def test_more_missing_than_accepted_is_noticed_at_the_last_look() -> None:
    world, log = a_dead_source(), FakeLog()
    failover = a_failover(world, log, policy=ACCEPTING, run_id="r1")
    failover.run(until_step="accept_loss")
    for place, sight in world.sights.items():
        world.sights[place] = replace(sight, end=sight.end + 5)
    result = failover.run()
    assert (result.state, result.step) == ("rolled_back", "promote")
    assert "more is missing than was accepted" in result.reason


def test_positions_that_still_move_are_waited_for() -> None:
    world, log, looks = a_dead_source(), FakeLog(), []

    def moving(action: Any) -> Any:
        if isinstance(action, ReadLastSeenSource) and len(looks) < 3:
            looks.append(action)
            sights = {p: replace(s, end=s.end + len(looks)) for p, s in world.sights.items()}
            return LastSeenSource(int(world.now * 1000), world.wall_ms, sights)
        return None

    world.hook = moving
    assert a_failover(world, log, policy=ACCEPTING).run().state == "done"


def entries_of_a_whole_run() -> int:
    log = FakeLog()
    a_failover(a_dead_source(), log, policy=ACCEPTING).run()
    return len(log.records)


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(1, entries_of_a_whole_run())))
def test_a_crash_at_any_entry_is_resumed_to_the_end(at: int, stored: bool) -> None:
    world, log = a_dead_source(), FakeLog(crash_at=at, stored=stored)
    world.withheld = (A_RIGHT,)
    with pytest.raises(Crash):
        a_failover(world, log, policy=ACCEPTING, run_id="r1").run()
    world.tick()
    result = a_failover(world, log, "second", policy=ACCEPTING, run_id="r1").run()
    assert_promoted(world, log, result)
    assert world.given == [A_RIGHT]


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(1, 40)))
def test_a_crash_in_a_failover_that_is_refused_leaves_nothing_half_done(at: int, stored: bool) -> None:
    world, log = a_dead_source(), FakeLog(crash_at=at, stored=stored)
    policy = replace(POLICY, accept_loss=1)
    first = None
    try:
        first = a_failover(world, log, policy=policy, run_id="r1").run()
    except Crash:
        world.tick()
    second = a_failover(world, log, "second", policy=policy, run_id="r1").run()
    assert second.state == "rolled_back"
    assert first is None or first == second
    assert (world.flow_state, world.retired[None], world.cut) == ("running", set(), set())
    assert world.asked == []


def test_a_migration_is_refused_while_a_failover_is_unfinished() -> None:
    world, log = a_dead_source(), FakeLog()
    a_failover(world, log, policy=ACCEPTING, run_id="r1").run(until_step="declare_loss")
    with pytest.raises(Locked):
        a_migration(world, log, "second").run()


def test_a_failover_that_is_given_up_before_the_promotion_lets_the_flow_run_again() -> None:
    world, log = a_dead_source(), FakeLog()
    a_failover(world, log, policy=ACCEPTING, run_id="r1").run(until_step="accept_loss")

    def opened(**hooks: Any) -> RunDriver:
        return a_failover(world, log, "second", policy=ACCEPTING, resume=True, abandon=True, **hooks)

    assert abandon_run(opened, "given up", lambda _event: None).state == "rolled_back"
    assert (world.flow_state, world.retired[None], world.cut) == ("running", set(), set())


def a_migration_under_way(log: FakeLog) -> FailoverWorld:
    world = FailoverWorld()
    quick = replace(POLICY, consumer_lag=None)
    a_migration(world, log, plan=back_plan(), policy=quick, run_id="m1").run(until_step="landing_test")
    world.die()
    return world


def entries_behind_a_migration() -> tuple[int, int]:
    log = FakeLog()
    world = a_migration_under_way(log)
    first = len(log.records)
    assert a_failover(world, log, policy=ACCEPTING, run_id="f1").run().state == "done"
    return first, len(log.records)


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(*entries_behind_a_migration())))
def test_a_crash_beside_a_migration_that_was_under_way(at: int, stored: bool) -> None:
    log = FakeLog()
    world = a_migration_under_way(log)
    log.crash_at, log.stored = at, stored
    with pytest.raises(Crash):
        a_failover(world, log, policy=ACCEPTING, run_id="f1").run()
    world.tick()
    assert_promoted(world, log, a_failover(world, log, "second", policy=ACCEPTING, run_id="f1").run())
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert (chain.run("m1")[-1].observation["state"], chain.unfinished()) == ("abandoned", [])


def test_late_groups_that_stay_behind_are_named() -> None:
    world, log = a_dead_source(), FakeLog()
    policy = replace(POLICY, accept_loss=10**9, late_groups={"reports": "later"})
    assert a_failover(world, log, policy=policy).run().state == "done"
    [told] = [line for line in world.said if "is not promoted" in line]
    assert "group reports of wave later is not promoted: producers of topics that it reads have moved" in told
