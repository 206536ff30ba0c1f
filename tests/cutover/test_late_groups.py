"""Groups that stay at the source when their producers move, and follow in waves of their own, in any order (issue 21,
decision 0121). The crash matrix of these waves is in `test_late_group_crashes`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.late_world import (
    AUDIT,
    EARLY,
    LATE,
    PRODUCERS,
    REPORTS,
    TOPICS,
    WAY_BACK,
    LateWorld,
    assert_exact,
    back,
    late_plan,
    move,
    pass_time,
    switched,
)
from tests.cutover.spoils import upon
from tests.cutover.world import REVERSE, a_plan, target_of
from tests.cutover.world_back import BACK
from watershed.cli.wave_status import show_wave_states
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, ReadCopies
from watershed.cutover.errors import NotSupported, WaveBlocked
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.journal.hash_chain import Journal, JournalChain
from watershed.cutover.observations import Observation, ObservedCopies
from watershed.cutover.operations.moved_applications import describe_moved_applications, refuse_end_of_way_back
from watershed.cutover.operations.proposal import OperationRefused
from watershed.cutover.run_plan import plan_migration
from watershed.cutover.wave_states import describe_late_groups, list_wave_states
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, RepeatedRunMap
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.topology.migration_waves import Wave, WaveFence, complete_late_waves
from watershed.topology.plan import Plan


@pytest.mark.parametrize("strategy", ["consumers_first", "producers_first", "fenced"])
@pytest.mark.parametrize("order", [(REPORTS, AUDIT), (AUDIT, REPORTS)])
def test_late_groups_follow_in_either_order(strategy: str, order: tuple[str, str]) -> None:
    log = FakeLog()
    world = switched(log, strategy)
    plan = late_plan(strategy)
    assert [world.side_of(group) for group in (EARLY, *order)] == ["target", "source", "source"]
    for group in order:
        assert move(world, log, group, plan=plan).run().state == "done"
        assert world.side_of(group) == "target"
        pass_time(world)
    assert_exact(world)


def test_a_late_group_goes_back_and_comes_again() -> None:
    log = FakeLog()
    world = switched(log)
    for _ in range(2):
        assert move(world, log, REPORTS).run().state == "done"
        pass_time(world)
        assert back(world, log, REPORTS).run().state == "done"
        assert (world.side_of(REPORTS), world.reverse_state) == ("source", "running")
        pass_time(world)
    assert_exact(world)


def chain_of(log: FakeLog) -> JournalChain:
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    return chain


def test_positions_on_both_sides_of_the_switch_are_exact() -> None:
    """One group has read nothing since the switch, the other nearly everything."""
    log, world = FakeLog(), LateWorld()
    world.apps[AUDIT].running = False
    assert move(world, log, "producers").run().state == "done"
    pass_time(world)
    begins = {}
    for group in LATE:
        result = move(world, log, group, run_id=group).run()
        assert result.state == "done", result
        [moved] = [
            entry.observation["outcome"]["groups"][group]
            for entry in chain_of(log).run(group)
            if (entry.step, entry.kind) == ("translate_offsets", "outcome")
        ]
        begins[group] = moved["source"]["orders"]["0"]
    barrier = next(
        entry.observation["outcome"]["ends"]["orders"]["0"]
        for entry in chain_of(log).entries
        if (entry.step, entry.kind, entry.deed) == ("barrier", "outcome", "")
    )
    assert begins[AUDIT] < barrier < begins[REPORTS]
    assert_exact(world)


def test_a_group_of_topics_that_two_waves_have_moved_follows_both() -> None:
    """Each topic has a switch of its own; between the two waves the groups read one topic of each kind."""
    orders, clicks = TOPICS
    waves = complete_late_waves(
        (
            Wave("first", (orders,), producers=PRODUCERS[:1], rollback=WAY_BACK),
            Wave("second", (clicks,), producers=PRODUCERS[1:], rollback=WAY_BACK, strategy="fenced"),
            *(Wave(group, (orders, clicks), (group,), strategy="consumers_last") for group in (EARLY, *LATE)),
        )
    )
    assert [wave.after for wave in waves[2:]] == [("first", "second")] * 3
    log, plan = FakeLog(), a_plan(waves=waves)
    world = LateWorld({PRODUCERS[0]: (orders,), PRODUCERS[1]: (clicks,)})
    assert move(world, log, "first", plan=plan).run().state == "done"
    pass_time(world)
    with pytest.raises(WaveBlocked, match="comes after second"):
        move(world, log, AUDIT, plan=plan).run()
    assert move(world, log, "second", plan=plan).run().state == "done"
    for group in (AUDIT, EARLY, REPORTS):
        pass_time(world)
        assert move(world, log, group, plan=plan).run().state == "done"
    assert_exact(world)


def test_a_position_that_the_ledger_does_not_know_yet_is_waited_for() -> None:
    """A transaction of the flow back shows in the topic before it shows in the ledger."""
    log = FakeLog()
    world = switched(log)
    looks = 0

    def hook(action: Action) -> Observation | None:
        nonlocal looks
        translates = any(line.startswith("translate_offsets: begin") for line in world.said)
        if not translates or not isinstance(action, ReadCopies) or action.flow != REVERSE or looks > 6:
            return None
        looks += 1
        found = {}
        for place in action.places:
            held = world.carried(place)
            assert held is not None
            assert isinstance(held.map, ExplicitRunMap)
            short = ExplicitRunMap.over(held.map.counted[:3], held.map.begin, held.map.position)
            found[place] = replace(held, map=short)
        return ObservedCopies(int(world.now * 1000), found)

    world.hook = hook
    assert move(world, log, REPORTS).run().state == "done"
    assert any("the ledger is not there yet" in line for line in world.said)
    assert_exact(world)


def test_records_of_strangers_that_the_group_has_not_read_are_refused() -> None:
    log = FakeLog()
    world = switched(log)
    upon(ReadCopies, lambda w: w.stranger_writes(TopicPartition("orders", 0)), step="translate_offsets")(world)
    result = move(world, log, REPORTS).run()
    assert result.state == "rolled_back"
    assert "orders-0 offsets" in result.reason
    assert "would miss them" in result.reason
    assert world.side_of(REPORTS) == "source"


def test_records_of_strangers_that_the_group_has_read_hold_nothing_up() -> None:
    """Nobody writes at the target meanwhile, so nothing that was carried back stands behind them."""
    log = FakeLog()
    world = switched(log)
    world.writes = {}
    pass_time(world)
    world.stranger_writes(TopicPartition("orders", 0))
    pass_time(world)
    result = move(world, log, REPORTS).run()
    assert result.state == "done", result
    assert world.side_of(REPORTS) == "target"


def test_a_partition_that_was_added_after_the_switch_moves_with_its_group() -> None:
    """The migration's flow has no ledger of it: all that it holds came from the applications at the target."""
    log = FakeLog()
    world = switched(log)
    added = TopicPartition("orders", 2)
    world.topics["orders"] = 3
    world.logs["source"][added], world.logs["target"][target_of(added)] = [], []
    world.runs[added], world.position[added] = [], 0
    pass_time(world)

    def hook(action: Action) -> Observation | None:
        if not isinstance(action, ReadCopies) or action.flow == REVERSE:
            return None
        held = {place: world._copied(place) for place in action.places if place != added}
        return ObservedCopies(int(world.now * 1000), held)

    world.hook = hook
    result = move(world, log, REPORTS).run()
    assert result.state == "done", result
    assert world.groups["target"].describe(REPORTS).offsets[target_of(added)] > 0


def test_flows_that_repeat_are_refused_before_anything_stops() -> None:
    log = FakeLog()
    world = switched(log)

    def hook(action: Action) -> Observation | None:
        if not isinstance(action, ReadCopies) or action.flow == REVERSE:
            return None
        runs = ExplicitRunMap.over((), OffsetRun(0, 0), 0)
        held = CopiedPartition(RepeatedRunMap.beside(runs, 0, ()), 0)
        return ObservedCopies(int(world.now * 1000), dict.fromkeys(action.places, held))

    world.hook = hook
    result = move(world, log, REPORTS).run()
    assert result.state == "refused"
    assert "flow onprem-to-cloud copies clicks, orders with repeats" in result.reason


def test_a_way_back_of_late_groups_asks_for_no_fence() -> None:
    """They inherit the fence of the file, which here could not be raised."""
    log, fence = FakeLog(), WaveFence("external")
    world = switched(log)
    assert move(world, log, REPORTS, policy={"fence": fence}).run().state == "done"
    pass_time(world)
    result = back(world, log, REPORTS, policy=replace(BACK, fence=fence)).run()
    assert result.state == "done", result


def test_producers_go_back_while_groups_are_late_and_all_come_again() -> None:
    log = FakeLog()
    world = switched(log)
    assert back(world, log, "producers").run().state == "done"
    assert {world.apps[name].side for name in (EARLY, *LATE, *PRODUCERS)} == {"source"}
    pass_time(world)
    with pytest.raises(WaveBlocked, match="comes after producers"):
        move(world, log, REPORTS).run()
    assert move(world, log, "producers", "again").run().state == "done"
    pass_time(world)
    for group in LATE:
        assert move(world, log, group, "again").run().state == "done"
        pass_time(world)
    assert_exact(world)


def test_producers_stay_while_a_late_group_is_at_the_target() -> None:
    log = FakeLog()
    world = switched(log)
    assert move(world, log, AUDIT).run().state == "done"
    with pytest.raises(WaveBlocked, match="Roll audit back first"):
        back(world, log, "producers")


def test_the_state_between_the_waves_names_groups_and_since_when() -> None:
    log, plan = FakeLog(), late_plan()
    assert [each.at_source for each in list_wave_states(plan, chain_of(log))] == [(), (), ()]
    world = switched(log)
    assert move(world, log, REPORTS).run().state == "done"
    states = {each.name: each for each in list_wave_states(plan, chain_of(log))}
    assert [(each.state, each.truth) for each in states.values()] == [
        ("done", "cloud"),
        ("done", "cloud"),
        ("next", "cloud"),
    ]
    assert (states[REPORTS].at_source, states[AUDIT].at_source) == ((), (AUDIT,))
    said = describe_late_groups(states[AUDIT], "onprem")
    assert said.startswith("audit is still at onprem, since 1970-01-01 ")
    assert "topology migrate --wave audit" in said
    assert describe_late_groups(states[REPORTS], "onprem") == ""


def test_the_preflight_of_the_producers_says_who_stays() -> None:
    log, world = FakeLog(), LateWorld()
    world.other_readers = {REPORTS: ("orders",), "unknown": ("orders",)}
    assert move(world, log, "producers").run().state == "done"
    assert any(f"group {REPORTS} stays at onprem, where flow {REVERSE}" in line for line in world.said)
    assert not any(f"group {REPORTS} reads" in line for line in world.said)
    assert any("group unknown reads orders at onprem and is not in wave producers" in line for line in world.said)


def test_a_way_back_that_does_not_run_is_refused_before_anything_stops() -> None:
    log = FakeLog()
    world = switched(log)
    world.reverse_state = "paused"
    result = move(world, log, REPORTS).run()
    assert result.state == "refused"
    assert f"flow {REVERSE}, which feeds the groups at onprem, is paused" in result.reason
    assert "topology flow resume" in result.reason


def test_late_groups_have_no_other_strategy() -> None:
    with pytest.raises(NotSupported, match="cannot be run as fenced"):
        plan_migration(late_plan(), REPORTS, strategy="fenced")


def test_a_failover_before_the_switch_promotes_late_groups_with_their_producers() -> None:
    chosen = plan_failover(late_plan(), chain=chain_of(FakeLog()))
    assert (chosen.wave.name, chosen.wave.consumers) == ("producers+reports+audit", (EARLY, *LATE))
    with pytest.raises(NotSupported, match=r"--wave producers\+reports"):
        plan_failover(late_plan(), REPORTS, chain=chain_of(FakeLog()))


def test_a_failover_of_producers_names_the_late_groups_that_it_would_forget() -> None:
    chain = chain_of(FakeLog())
    with pytest.raises(NotSupported, match=r"groups reports, audit read topics.*--wave producers\+reports\+audit"):
        plan_failover(late_plan(), "producers", chain=chain)
    with pytest.raises(NotSupported, match=r"groups audit read topics.*--wave producers\+reports\+audit"):
        plan_failover(late_plan(), "producers+reports", chain=chain)
    assert plan_failover(late_plan(), "producers+reports+audit", chain=chain).wave.consumers == (EARLY, *LATE)


def test_a_failover_in_the_middle_of_a_late_move_promotes_nothing_twice() -> None:
    log = FakeLog()
    world = switched(log)
    assert move(world, log, REPORTS).run(until_step="stop_consumers").state == "paused"
    with pytest.raises(NotSupported, match="reports, audit were still at onprem"):
        plan_failover(late_plan(), chain=chain_of(log))


def test_a_failover_behind_the_switch_cannot_place_late_groups_and_says_so() -> None:
    log = FakeLog()
    switched(log)
    with pytest.raises(NotSupported, match="reports, audit were still at onprem"):
        plan_failover(late_plan(), chain=chain_of(log))


def split_plan() -> Plan:
    """Two waves of producers, and a late group that reads topics of both."""
    waves = (
        Wave("one", ("orders",), (), ("checkout",), rollback=WAY_BACK),
        Wave("two", ("clicks",), (EARLY,), ("web-edge",), rollback=WAY_BACK),
        Wave(REPORTS, tuple(TOPICS), (REPORTS,), strategy="consumers_last"),
    )
    return a_plan(waves=complete_late_waves(waves))


def test_a_failover_leaves_a_late_group_behind_of_which_one_topic_has_moved() -> None:
    """Its position in the moved topic has grown at the source since, and nothing has carried it over."""
    log, plan = FakeLog(), split_plan()
    everything = plan_failover(plan, chain=chain_of(log))
    assert (everything.wave.name, dict(everything.policy.late_groups)) == ("one+two+reports", {})
    world = LateWorld({"checkout": ("orders",), "web-edge": ("clicks",)})
    assert move(world, log, "one", plan=plan).run().state == "done"
    chain = chain_of(log)
    for wave in (None, "two"):
        chosen = plan_failover(plan, wave, chain=chain)
        assert (chosen.wave.name, chosen.wave.consumers, chosen.wave.topics) == ("two", (EARLY,), ("clicks",))
        assert dict(chosen.policy.late_groups) == {REPORTS: REPORTS}
    with pytest.raises(NotSupported, match="once wave two has been moved by `topology migrate`"):
        plan_failover(plan, "two+reports", chain=chain)


def test_behind_a_failover_of_its_producers_a_late_group_is_led_back_to_it() -> None:
    """Nobody can move it before these producers have moved by a migration, and their wave is done already."""
    log, plan = FakeLog(), split_plan()
    world = LateWorld({"checkout": ("orders",), "web-edge": ("clicks",)})
    assert move(world, log, "one", plan=plan).run().state == "done"
    journal = Journal(log, "shop", "third", world.clock)
    journal.refresh()
    about = {"actor": "ann", "plan_hash": plan.hash, "wave": "two"}
    journal.append("failed-over", "run", "intent", {"kind": "failover"}, **about)
    journal.append("failed-over", "run", "outcome", {"state": "done", "reason": ""}, **about)
    with pytest.raises(NotSupported, match=r"once the failover of wave two .*`topology failback`\), and wave two has"):
        plan_failover(plan, chain=chain_of(log))
    refused = move(world, log, REPORTS, plan=plan).run()
    assert refused.state == "refused"
    assert "If a failover promoted them, take it back first (`topology failback`)" in refused.reason
    assert f"Then move wave two by `topology migrate`, and wave {REPORTS} after that" in refused.reason


def test_a_failover_of_everything_names_late_groups_of_other_topics_too() -> None:
    waves = (
        Wave("one", ("orders",), (), ("checkout",), rollback=WAY_BACK),
        Wave("two", ("clicks",), (EARLY,), ("web-edge",), rollback=WAY_BACK),
        Wave(REPORTS, ("orders",), (REPORTS,), strategy="consumers_last"),
    )
    log, plan = FakeLog(), a_plan(waves=complete_late_waves(waves))
    world = LateWorld({"checkout": ("orders",), "web-edge": ("clicks",)})
    assert move(world, log, "one", plan=plan).run().state == "done"
    left = [dict(plan_failover(plan, wave, chain=chain_of(log)).policy.late_groups) for wave in (None, "two")]
    assert left == [{REPORTS: REPORTS}, {}]


def test_a_way_back_that_is_refused_at_its_very_end_leaves_the_group_where_it_was() -> None:
    """Its positions at the target are removed by then, and stand there again."""
    log = FakeLog()
    world = switched(log)
    assert move(world, log, REPORTS).run().state == "done"
    pass_time(world)

    def no_room() -> Path:
        raise OSError(28, "No space left on device", "evidence")

    result = back(world, log, REPORTS, evidence=no_room).run()
    assert result.state == "rolled_back"
    assert "No space left" in result.reason
    assert world.side_of(REPORTS) == "target"
    pass_time(world)
    assert_exact(world)


def test_the_flow_back_is_not_ended_while_groups_are_at_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    log, plan = FakeLog(), late_plan()
    world = switched(log)
    monkeypatch.setattr("watershed.cutover.journal.topology_journal.read_journal_chain", lambda *_: chain_of(log))
    for left in (LATE, (AUDIT,)):
        with pytest.raises(OperationRefused, match=f"flow {REVERSE} is not stopped") as refused:
            refuse_end_of_way_back(plan, lambda _alias: None, {REVERSE})  # type: ignore[arg-type, return-value]
        assert [group for group in LATE if f"{group} is still at onprem" in str(refused.value)] == [*left]
        assert move(world, log, left[0]).run().state == "done"
    refuse_end_of_way_back(plan, lambda _alias: None, {REVERSE})  # type: ignore[arg-type, return-value]


def test_status_names_late_groups_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    log, plan = FakeLog(), late_plan()
    world = switched(log)
    assert move(world, log, REPORTS).run().state == "done"
    monkeypatch.setattr("watershed.cutover.journal.topology_journal.read_journal_chain", lambda *_: chain_of(log))
    monkeypatch.setattr("watershed.clusters.flow_records.read_flows", lambda *_: {})
    producers, reports, audit = describe_moved_applications(plan, lambda _alias: None)  # type: ignore[arg-type, return-value]
    assert "flow onprem-to-cloud does not copy orders, clicks any more" in producers
    assert reports.startswith("wave reports: its applications are at cloud since migrate ")
    assert audit.startswith("wave audit: audit is still at onprem, since ")


def test_the_command_that_shows_waves_names_late_groups(capsys: pytest.CaptureFixture[str]) -> None:
    log = FakeLog()
    switched(log)
    assert show_wave_states(late_plan(), chain_of(log), "text") == 0
    told = capsys.readouterr().out
    assert "reports is still at onprem, since 1970-01-01" in told
    assert "audit is still at onprem, since 1970-01-01" in told
    assert show_wave_states(late_plan(), chain_of(log), "json") == 0
    assert [wave["at_source"] for wave in json.loads(capsys.readouterr().out)["waves"]] == [[], [REPORTS], [AUDIT]]
