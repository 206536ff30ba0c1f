"""Back to the old primary: what the new one took is carried back once, what only the old one had is named and stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.failover_world import FailoverWorld, a_dead_source, a_failback, a_failover
from tests.cutover.fake_log import Crash, FakeLog, list_crash_points
from tests.cutover.test_failover import outcome
from tests.cutover.world import GROUP, POLICY, PRODUCER, a_plan
from tests.cutover.world_back import FORWARD, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import FindDivergence
from watershed.cutover.errors import NothingToResume, NothingToRollBack, NotSupported, PlanChanged
from watershed.cutover.failover.divergence_steps import describe_divergence, encode_divergence
from watershed.cutover.failover.failback_plan import preview_failback
from watershed.cutover.observations import DivergentRange, ObservedDivergence
from watershed.cutover.step_runner import RunResult

ACCEPTING = replace(POLICY, accept_loss=1_000)


def a_returned_source(log: FakeLog, lag_ticks: int = 3) -> FailoverWorld:
    """The source has died and was failed over; applications went on for a while; it is back."""
    world = a_dead_source(lag_ticks)
    result = a_failover(world, log, policy=ACCEPTING, run_id="there").run()
    assert result.state == "done", result
    for _ in range(5):
        world.tick()
    world.revive()
    world.sleep(0.5)
    return world


def assert_back(world: FailoverWorld, result: RunResult, only_old: set[str]) -> None:
    """Everything of either side stands at the source once; nobody lost what was not lost before."""
    assert result.state == "done", result
    assert (world.apps[PRODUCER].side, world.apps[GROUP].side) == ("source", "source")
    for _ in range(3):
        world.tick()
    world.settle()
    for place, log in world.logs["source"].items():
        records = [record for record in log if record is not None]
        assert len(records) == len(set(records)), place
    everything = {r for log in world.logs["source"].values() for r in log if r is not None}
    written = {f"record {n}" for n in range(1, world.written + 1)}
    assert everything == written
    counts = Counter(world.processed)
    assert written - set(counts) <= only_old


@pytest.mark.parametrize("way", ["skip", "reread"])
def test_what_only_the_old_side_has_is_named_and_stays(way: str) -> None:
    log = FakeLog()
    world = a_returned_source(log)
    lost = set(world.lost)
    assert lost
    unread = lost - set(world.processed)
    result = a_failback(world, log, stranded=way).run()
    counts = Counter(world.processed)
    if way == "skip":
        assert [record for record, times in counts.items() if times > 1] == []
    assert_back(world, result, unread if way == "skip" else set())
    report = outcome_of_newest(log, "divergence")
    assert report["records"] == len(lost)
    named = {
        (place, n) for place, row in report["partitions"].items() for a, b in row["ranges"] for n in range(a, b + 1)
    }
    logs = world.logs["source"]
    assert {logs[TopicPartition(p.rsplit("-", 1)[0], int(p[-1]))][n] for p, n in named} == lost


def outcome_of_newest(log: FakeLog, step: str) -> Any:
    return next(
        r["observation"]["outcome"]
        for r in reversed(log.records)
        if r["step"] == step and r["kind"] == "outcome" and not r["deed"]
    )


def test_divergence_is_refused_until_somebody_decides() -> None:
    log = FakeLog()
    world = a_returned_source(log)
    result = a_failback(world, log).run()
    assert (result.state, result.step) == ("refused", "divergence")
    assert f"{len(world.lost)} records are only at onprem" in result.reason
    assert "--divergence skip" in result.reason
    assert world.reverse_state == "paused"
    assert (world.apps[PRODUCER].side, world.apps[GROUP].side) == ("target", "target")


def test_without_divergence_nobody_is_asked() -> None:
    log = FakeLog()
    world = a_returned_source(log, lag_ticks=0)
    assert world.lost == []
    assert_back(world, a_failback(world, log).run(), set())


def test_a_failback_is_done_once() -> None:
    log = FakeLog()
    world = a_returned_source(log, lag_ticks=0)
    assert a_failback(world, log, run_id="b1").run().state == "done"
    with pytest.raises(NothingToResume, match="already"):
        a_failback(world, log, "again", run_id="b2").run()


def test_without_a_failover_there_is_nothing_to_fail_back_from() -> None:
    with pytest.raises(NothingToRollBack, match="no failover"):
        a_failback(FailoverWorld(), FakeLog())
    world, log = a_dead_source(), FakeLog()
    a_failover(world, log, policy=ACCEPTING, run_id="there").run(until_step="promote")
    with pytest.raises(NothingToRollBack, match="is not done"):
        a_failback(world, log)


def test_a_file_that_moves_something_else_is_refused() -> None:
    log = FakeLog()
    world = a_returned_source(log)
    with pytest.raises(PlanChanged, match="names the same"):
        a_failback(world, log, plan=back_plan(producers=("somebody",)))


def test_an_old_primary_that_has_lost_copied_records_is_refused() -> None:
    log = FakeLog()
    world = a_returned_source(log)
    for place, records in world.logs["source"].items():
        del records[world.position[place] - 2 :]
    result = a_failback(world, log, stranded="skip").run()
    assert (result.state, result.step) == ("refused", "divergence")
    assert "has lost records that were copied" in result.reason


def test_a_topic_that_was_created_again_is_refused() -> None:
    log = FakeLog()
    world = a_returned_source(log)
    next(r for r in log.records if r["step"] == "cut_workers_off" and r["kind"] == "outcome" and not r["deed"])
    failback = a_failback(world, log, stranded="skip")
    assert failback.run_plan.earlier is not None
    failback.run_plan.earlier.outcomes["cut_workers_off"]["source_ids"] = {"orders": "id-1"}  # type: ignore[index]

    def anew(action: object) -> ObservedDivergence | None:
        if not isinstance(action, FindDivergence):
            return None
        return ObservedDivergence(0, (), dict.fromkeys(action.since, 0), dict(action.since), {"orders": "id-2"})

    world.hook = anew
    result = failback.run()
    assert (result.state, result.step) == ("refused", "divergence")
    assert "deleted and created again" in result.reason


@pytest.mark.parametrize("way", ["skip", "reread"])
def test_state_that_only_the_old_side_has_is_refused(way: str) -> None:
    world, place = a_returned_source(log := FakeLog()), TopicPartition(f"{GROUP}-counts-changelog", 0)

    def found(action: object) -> ObservedDivergence | None:
        if not isinstance(action, FindDivergence):
            return None
        ends = dict(action.since)
        return ObservedDivergence(0, (DivergentRange(place, 7, 9, 3, 1, 2),), dict.fromkeys(ends, 0), ends, {})

    world.hook = found
    result = a_failback(world, log, stranded=way).run()
    assert (result.state, result.step) == ("refused", "divergence")
    assert f"Streams application {GROUP}: {GROUP}-counts-changelog at onprem hold state" in result.reason


def test_the_standby_follows_again_where_it_may() -> None:
    log = FakeLog()
    world = a_returned_source(log, lag_ticks=0)
    a_failback(world, log).run()
    assert world.retired[None] == set()
    assert f"flow {FORWARD} is running and copies clicks, orders again" in " ".join(world.said)


@pytest.mark.parametrize("has_reports", [True, False])
def test_a_standby_that_a_budget_stopped_is_not_said_to_follow(has_reports: bool) -> None:
    log = FakeLog()
    world = a_returned_source(log, lag_ticks=0)
    stopped = f"flow {FORWARD} is paused by slo.lag.max"
    world.paused[None] = dict.fromkeys(("clicks", "orders") if has_reports else (), stopped)
    world.stands_still = stopped
    a_failback(world, log).run()
    told = " ".join(world.said)
    assert f"flow {FORWARD} has clicks, orders again and does not copy all of it now: {stopped}" in told
    assert "and copies clicks" not in told


def test_the_steps_are_known_without_any_cluster() -> None:
    course = preview_failback(back_plan())
    assert course.steps[0].name == "divergence"
    assert (course.kind, course.flow.source, course.flow.target) == ("failback", "cloud", "onprem")
    assert preview_failback(a_plan()).flow.id == course.flow.id  # the only flow that leads back
    plan = a_plan()
    with pytest.raises(NotSupported, match="no flow leads from cloud back to onprem"):
        preview_failback(replace(plan, flows=plan.flows[:1]))


def test_the_report_names_ranges_counts_and_times() -> None:
    place = TopicPartition("orders", 0)
    stretches = (DivergentRange(place, 5, 7, 3, 1_000, 3_000), DivergentRange(place, 9, 9, 1, 500, 500))
    assert encode_divergence(stretches) == {
        "records": 4,
        "partitions": {"orders-0": {"ranges": [[5, 7], [9, 9]], "records": 4, "oldest_ms": 500, "newest_ms": 3_000}},
    }
    assert "4 records are only at onprem (offsets orders-0 5 to 7, orders-0 9 to 9)" in describe_divergence(
        stretches, "onprem"
    )


def entries_of_a_whole_run() -> tuple[int, int]:
    log = FakeLog()
    world = a_returned_source(log)
    first = len(log.records)
    a_failback(world, log, stranded="skip").run()
    return first, len(log.records)


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(*entries_of_a_whole_run())))
def test_a_crash_at_any_entry_is_resumed_to_the_end(at: int, stored: bool) -> None:
    log = FakeLog()
    world = a_returned_source(log)
    unread = set(world.lost) - set(world.processed)
    log.crash_at, log.stored = at, stored
    with pytest.raises(Crash):
        a_failback(world, log, stranded="skip", run_id="b1").run()
    world.tick()
    result = a_failback(world, log, "second", stranded="skip", run_id="b1").run()
    assert_back(world, result, unread)
    assert outcome(log, "cut_workers_off")["loss"]["offsets"] > 0
