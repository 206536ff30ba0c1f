"""Positions that are part of open transactions are waited for, in every step that needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.cutover.grouped import ORDERS, REPARTITION, STORE, Groups, inside, moved
from tests.cutover.spoils import straggle, upon
from tests.cutover.world import GROUP, a_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, ClusterSide, ReadGroup, ReadLogs
from watershed.cutover.observations import Observation, ObservedGroup


def hide(world: Groups, looks: int, when: Callable[[], bool], side: ClusterSide = "source") -> None:
    """The first `looks` readings of the group show no position, as from a broker before Kafka 2.5."""
    left, before = looks, world.hook

    def hook(action: Action) -> Observation | None:
        nonlocal left
        if isinstance(action, ReadGroup) and action.side == side and left and when():
            left -= 1
            seen = world._group(int(world.now * 1000), side, GROUP)
            return without_positions(seen)
        return before(action)

    world.hook = hook


def without_positions(seen: ObservedGroup) -> ObservedGroup:
    return replace(seen, offsets={}, texts={}, unstable=frozenset(seen.offsets))


def is_undoing(world: Groups) -> bool:
    return any("undo" in line and "commit" in line for line in world.said[-2:])


@pytest.mark.parametrize("step", ["commit_offsets", "start_consumers"])
def test_a_group_whose_positions_are_hidden_for_a_moment_has_not_moved(step: str) -> None:
    world = Groups()
    hide(world, 3, lambda: inside(world, step))
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert any("orders-0 is committed in a transaction that is still open" in line for line in world.said)


def test_a_transaction_that_stays_open_is_named_when_the_wait_is_over() -> None:
    world = Groups()
    hide(world, 100_000, lambda: inside(world, "commit_offsets") and not world.commits)
    state, step, why = moved(world)
    assert (state, step) == ("rolled_back", "commit_offsets")
    assert "orders-0 is committed in a transaction that is still open" in why
    assert "something else uses this group id" not in why


def test_a_group_that_is_stopped_and_hidden_before_the_run_has_commits() -> None:
    world = Groups()
    world.apps[GROUP].running = False
    hide(world, 3, lambda: inside(world, "preflight"))
    _, _, why = moved(world)
    assert "has no commit" not in why


def test_hidden_positions_of_a_streams_application_do_not_begin_at_the_first_record() -> None:
    """Read from there, its repartition topic would look as if nothing had been processed."""
    world, place = Groups(kind="streams", internal=(REPARTITION, STORE)), TopicPartition(REPARTITION, 0)
    world.new_topics = {REPARTITION: 2, STORE: 2}

    def process(action: Action) -> None:
        if isinstance(action, ReadGroup):
            world.pending.clear()

    def is_translating() -> bool:
        if inside(world, "translate_offsets"):
            world.pending = {place}
        return inside(world, "translate_offsets")

    world.hook = process
    hide(world, 3, is_translating)
    state, _, why = moved(world, rebuild=frozenset({GROUP}))
    assert (state, why) == ("done", "")


def test_what_somebody_has_read_on_counts_though_it_is_hidden_when_the_commit_is_taken_back() -> None:
    world, far = Groups(), 100_000
    upon(ReadLogs, straggle, nth=11, step="standstill")(world)

    def has_read_on() -> bool:
        if is_undoing(world):
            world.offsets["source"][GROUP][ORDERS] = far
        return is_undoing(world)

    hide(world, 3, has_read_on)
    state, _, _why = moved(world)
    assert state == "rolled_back"
    assert all(ORDERS not in each.offsets for each in world.commits if each.side == "source")
    assert world.offsets["source"][GROUP][ORDERS] == far


def test_producers_first_waits_for_what_a_group_has_read() -> None:
    world, strategy = Groups(), "producers_first"
    hide(world, 3, lambda: inside(world, "drain_consumers"))
    state, _, why = moved(world, a_plan(strategy=strategy), strategy=strategy)
    assert (state, why) == ("done", "")
    assert any("drain_consumers: " in line and "orders-0 is committed in a transaction" in line for line in world.said)
