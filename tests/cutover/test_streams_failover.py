"""A failover of a Kafka Streams application, in memory: nothing is promoted without its state, and what is beyond its
positions is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.failover_world import FailoverWorld, a_dead_source, a_failover
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import GROUP, POLICY, PRODUCER
from tests.cutover.world_back import back_plan
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, CommitOffsets
from watershed.cutover.failover.streams_standby import describe_states, list_standby_problems
from watershed.cutover.gates import list_history_topics
from watershed.cutover.journal.hash_chain import JournalChain, find_step_outcome
from watershed.cutover.observations import Observation
from watershed.cutover.run_context import RunContext
from watershed.topology.migration_waves import Wave
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.sync_settings import GroupSync, SyncSettings

ACCEPTING = replace(POLICY, accept_loss=1_000)
CHANGELOG = TopicPartition("clicks", 0)  # of the topics that the world has
INPUT = TopicPartition("dc.orders", 0)


def streams_plan() -> Plan:
    plan = back_plan()
    sync = SyncSettings(groups=GroupSync("continuous", streams=(GROUP,)))
    return seal_plan(replace(plan, flows=(replace(plan.flows[0], sync=sync), *plan.flows[1:])))


def copied(world: FailoverWorld) -> int:
    return world._copied(CHANGELOG).position


def fail_over(world: FailoverWorld, log: FakeLog) -> Any:
    return a_failover(world, log, plan=streams_plan(), policy=ACCEPTING).run()


def find_outcome(log: FakeLog, step: str) -> dict[str, Any]:
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    found = find_step_outcome(chain.entries, step)
    assert found is not None, step
    return found[0]


def test_what_is_beyond_the_positions_is_said_before_anybody_accepts_a_loss() -> None:
    world, log = a_dead_source(), FakeLog()
    end = copied(world)
    world.states = {GROUP: StateRange("onprem-to-cloud", GROUP, {CHANGELOG: end - 3}, {CHANGELOG: end - 1})}
    assert fail_over(world, log).state == "done"
    for step in ("declare_loss", "cut_workers_off"):
        assert find_outcome(log, step)["states"][GROUP] == {"beyond": 3, "behind": {}, "read_at_ms": 0}
    assert any("at most as many records may be applied twice" in text for text in world.said)


def test_what_an_application_kept_beside_its_positions_is_there_again() -> None:
    world, log = a_dead_source(), FakeLog()
    state = StateRange("onprem-to-cloud", GROUP, {CHANGELOG: 0}, {}, {INPUT: "AgAAAaIf"})
    world.states, texts = {GROUP: state}, {}
    answer = world.hook

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CommitOffsets) and action.side == "target":
            texts.update(action.texts)
        return answer(action)

    world.hook = hook  # type: ignore[method-assign]
    assert fail_over(world, log).state == "done"
    assert texts == {INPUT: "AgAAAaIf"}


def test_a_copy_that_lacks_state_is_not_promoted() -> None:
    world, log = a_dead_source(), FakeLog()
    end = copied(world)
    world.states = {GROUP: StateRange("onprem-to-cloud", GROUP, {CHANGELOG: end}, {CHANGELOG: end + 1})}
    result = fail_over(world, log)
    assert result.state in ("refused", "rolled_back")
    assert f"{CHANGELOG} (copied through {end} of {end + 1})" in result.reason
    assert world.apps[PRODUCER].side == "source"


def test_an_application_that_builds_its_state_again_needs_none_of_the_copies() -> None:
    world, log = a_dead_source(), FakeLog()
    end = copied(world)
    world.states = {GROUP: StateRange("onprem-to-cloud", GROUP, {CHANGELOG: end}, {CHANGELOG: end + 1})}
    policy = replace(ACCEPTING, rebuild=frozenset({GROUP}))
    assert a_failover(world, log, plan=streams_plan(), policy=policy).run().state == "done"
    assert find_outcome(log, "cut_workers_off")["states"] == {}


def test_positions_without_state_are_not_promoted() -> None:
    world, log = a_dead_source(), FakeLog()
    result = fail_over(world, log)
    assert (result.state, result.step) == ("refused", "failover_preflight")
    assert f"group {GROUP}: its state was never copied" in result.reason


@pytest.mark.parametrize(
    ("named", "kind", "state", "wave", "rebuild", "says"),
    [
        (True, "streams", StateRange("f", GROUP, {CHANGELOG: 1}), ("clicks",), False, ""),
        (True, "streams", StateRange("f", GROUP, {CHANGELOG: 1}), ("orders",), False, "not in wave all: clicks"),
        (False, "streams", None, ("clicks",), False, "does not name it in sync.groups.streams"),
        (False, "streams", None, ("clicks",), True, ""),
        (True, "streams", None, ("clicks",), True, ""),
        (False, "classic", None, ("clicks",), False, ""),
    ],
)
def test_what_a_failover_needs_of_an_application(
    named: bool, kind: str, state: StateRange | None, wave: tuple[str, ...], rebuild: bool, says: str
) -> None:
    flow = (streams_plan() if named else back_plan()).flows[0]
    policy = replace(POLICY, rebuild=frozenset({GROUP} if rebuild else ()))
    context = RunContext(flow, Wave("all", wave, (GROUP,), ()), policy)
    context.outcomes["failover_preflight"] = {"partitions": dict.fromkeys(wave, 1)}
    found = " ".join(list_standby_problems(context, GROUP, kind, ("clicks",), state))
    assert says in found
    assert bool(says) == bool(found)


def test_what_is_missing_is_said_in_place_of_what_is_beyond() -> None:
    [text] = describe_states({GROUP: {"beyond": 7, "behind": {"clicks-0": "copied through 1 of 2"}, "read_at_ms": 0}})
    assert "State that belongs to them is missing: clicks-0" in text
    assert "beyond" not in text


def test_repartition_topics_are_proven_when_their_application_stands_still() -> None:
    topics = ("orders", "counter-counts-changelog", "counter-counts-repartition")
    assert list_history_topics(topics) == ("counter-counts-changelog", "orders")
