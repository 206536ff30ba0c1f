"""Groups of every kind in the small world: what each needs, and every refusal by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cutover.grouped import CLICKS, ORDERS, REPARTITION, STORE, Groups, moved, renamed
from tests.cutover.world import GROUP, PRODUCER, a_plan, target_of
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    ReadGroup,
    StartApplication,
)
from watershed.cutover.observations import Observation, ObservedGroup

# -- share groups -----------------------------------------------------------------------------------------------


def test_a_share_group_needs_a_word_on_what_comes_again() -> None:
    world = Groups(kind="share", again={ORDERS: 3})
    state, step, why = moved(world)
    assert (state, step) == ("refused", "preflight")
    assert "share group" in why
    assert f"migration.groups.{GROUP}.redelivery: accept" in why
    assert "3 offsets" in why


def test_a_share_groups_start_offsets_are_moved_and_what_comes_again_is_told() -> None:
    world = Groups(kind="share", again={ORDERS: 3})
    state, step, why = moved(world, redelivery=frozenset({GROUP}))
    assert (state, why) == ("done", ""), step
    assert [each.kind for each in world.commits] == ["share"]
    assert any("delivered at most 3 records again (orders-0=3)" in line for line in world.said)


def test_a_share_group_that_is_done_with_everything_goes_on_behind_it() -> None:
    """Brokers store start offsets late: where nothing is left, the position is the log's end."""
    world = Groups(kind="share")
    world.behind = 4

    def hook(_action: Action) -> None:
        fenced = world.apps[PRODUCER].side == "target" or not world.apps[PRODUCER].running
        world.more["done"] = {place: len(log) for place, log in world.logs["source"].items() if fenced}

    world.hook = hook
    plan = a_plan(strategy="producers_first")
    state, _, why = moved(world, plan, strategy="producers_first")
    assert (state, why) == ("done", "")
    [commit] = world.commits
    end = len(world.logs["source"][ORDERS])
    assert world.offsets["source"][GROUP][ORDERS] < end
    assert commit.offsets[target_of(ORDERS)] == world._copied(ORDERS).map.to_target(end, 10_000)


def test_what_a_share_group_would_get_again_is_refused_where_nobody_accepted_it() -> None:
    world = Groups(kind="share", again={CLICKS: 2})
    state, step, why = moved(world, a_plan(strategy="producers_first"), strategy="producers_first")
    assert (state, step) == ("stopped", "translate_offsets")
    assert "clicks-0=2" in why
    assert not world.commits


@pytest.mark.parametrize(("here", "there"), [("share", "classic"), ("classic", "share"), ("streams", "share")])
def test_a_group_cannot_be_of_two_kinds(here: str, there: str) -> None:
    world = Groups(kind=here)
    world.hook = lambda action: (
        ObservedGroup(0, GROUP, "Empty", 0, {}, kind=there)
        if isinstance(action, ReadGroup) and action.side == "target"
        else None
    )
    state, step, why = moved(world, redelivery=frozenset({GROUP}))
    assert (state, step) == ("refused", "preflight")
    assert f"a {here} group at onprem and a {there} group at cloud" in why


# -- Streams ----------------------------------------------------------------------------------------------------


def streams(**more: Any) -> Groups:
    """A Streams application with a store and a repartition topic, which are no topics of the wave."""
    world = Groups(kind="streams", internal=(REPARTITION, STORE), **more)
    world.new_topics = {REPARTITION: 2, STORE: 2}
    return world


def test_a_streams_application_is_refused_with_the_topics_that_are_missing() -> None:
    state, step, why = moved(streams())
    assert (state, step) == ("refused", "preflight")
    assert f"{REPARTITION}, {STORE}" in why
    assert f"migration.groups.{GROUP}.state: rebuild" in why


def test_a_streams_application_may_begin_with_empty_stores() -> None:
    world = streams()
    state, _, why = moved(world, rebuild=frozenset({GROUP}))
    assert (state, why) == ("done", "")


def test_records_on_their_way_through_a_streams_application_are_not_left_behind() -> None:
    world = streams()
    world.pending = {TopicPartition(REPARTITION, 1)}
    state, step, why = moved(world, rebuild=frozenset({GROUP}))
    assert (state, step) == ("rolled_back", "translate_offsets")
    assert f"{REPARTITION}-1" in why
    assert "lost" in why


def test_producers_first_lets_a_streams_application_process_them() -> None:
    world = streams()
    world.pending = {TopicPartition(REPARTITION, 1)}
    world.processed_after = 3
    strategy = "producers_first"
    state, step, why = moved(world, a_plan(strategy=strategy), rebuild=frozenset({GROUP}), strategy=strategy)
    assert (state, why) == ("done", ""), f"{step}: {why}"
    assert not world.pending


def test_a_streams_application_keeps_its_name_and_the_names_of_its_topics() -> None:
    world = Groups(kind="streams", internal=("orders",))  # as if the wave's topic were its own
    _, step, why = moved(world, renamed(a_plan(), (GROUP, "billing-cloud")))
    assert step == "preflight"
    assert "cannot be renamed to billing-cloud" in why
    assert "orders would be dc.orders at cloud" in why
    assert "name it among the producers of wave all, too" in why


def test_an_application_that_reads_and_writes_moves_fenced_and_starts_behind_the_point_of_no_return() -> None:
    both = (PRODUCER, GROUP)
    state, step, why = moved(Groups(), a_plan(producers=both))
    assert (state, step) == ("refused", "preflight")
    assert "strategy: fenced" in why
    world = Groups()
    started: list[str] = []

    def hook(action: Action) -> None:
        if isinstance(action, StartApplication) and action.name == GROUP:
            started.append(next(line for line in reversed(world.said) if ": begin" in line).partition(":")[0])

    world.hook = hook
    state, _, why = moved(world, a_plan(producers=both, strategy="fenced"), strategy="fenced")
    assert (state, why) == ("done", "")
    assert started == ["switch_producers"]


# -- members ----------------------------------------------------------------------------------------------------


def test_a_static_member_is_waited_for_as_long_as_it_keeps_its_place() -> None:
    world = Groups(static=("billing-1",))
    world.linger_s = 45.0  # more than POLICY.empty_bound_ms
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert any("static members (billing-1)" in line for line in world.said)


def test_a_static_member_that_never_goes_is_named_and_never_evicted() -> None:
    world = Groups(static=("billing-1", "billing-2"))
    world.linger_s = 200.0
    world.hook = lambda action: (
        ObservedGroup(int(world.now * 1000), GROUP, "Stable", 1, {}, static=("billing-2",), who=("b at h (billing-2)",))
        if isinstance(action, ReadGroup) and action.side == "source" and world.stopped_at is not None
        else None
    )
    state, step, why = moved(world)
    assert step == "stop_consumers"
    assert "1 member: b at h (billing-2)" in why
    assert "session.timeout.ms" in why
    assert "(waited 60 s)" in why
    assert state == "rolled_back"


def test_a_session_that_is_longer_than_usual_is_declared() -> None:
    world = Groups(static=("billing-1",))
    world.linger_s = 200.0
    assert moved(world, sessions_ms={GROUP: 300_000})[0] == "done"


def test_a_group_that_comes_and_goes_is_not_taken_for_empty() -> None:
    """C15: a rebalance in which nobody is a member for a moment."""
    world, looks = Groups(), 0

    def hook(action: Action) -> None:
        nonlocal looks
        if isinstance(action, ReadGroup) and action.side == "source" and not world.apps[GROUP].running:
            looks += 1
            world.strangers["source"] = int(looks % 3 == 0 and looks < 8)

    world.hook = hook
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert looks >= 9


def test_who_comes_alive_on_the_target_is_shown_and_not_reset() -> None:
    """C14, C20."""
    world = Groups()

    def hook(action: Action) -> Observation | None:
        begun = any(line.startswith("commit_offsets: begin") for line in world.said)
        undoing = any(line.startswith("undo_") for line in world.said)
        if isinstance(action, ReadGroup) and action.side == "target" and begun and not undoing:
            return ObservedGroup(0, GROUP, "Stable", 1, {}, who=("early-1 at 10.0.0.9",))
        return None

    world.hook = hook
    state, step, why = moved(world)
    assert (state, step) == ("rolled_back", "commit_offsets")
    assert "1 member: early-1 at 10.0.0.9" in why
    assert not world.commits


# -- what brokers hold groups to --------------------------------------------------------------------------------


def held_to(kind: str, here: dict[str, str], there: dict[str, str]) -> Groups:
    world = Groups(kind=kind)
    world.group_configs = {"source": here, "target": there}
    return world


@pytest.mark.parametrize(
    ("key", "means"),
    [
        ("share.isolation.level", "what was rolled back is read at one of them and not at the other"),
        ("share.auto.offset.reset", "partitions without a start offset would begin elsewhere"),
    ],
)
def test_settings_that_change_what_is_read_are_refused_with_the_way_to_mend_them(key: str, means: str) -> None:
    world = held_to("share", {key: "one"}, {key: "other"})
    state, step, why = moved(world, redelivery=frozenset({GROUP}))
    assert (state, step) == ("refused", "preflight")
    assert f"group {GROUP} has {key}=one at onprem and other at cloud: {means}. To keep it: kafka-configs" in why
    assert f"--entity-type groups --entity-name {GROUP} --add-config {key}=one" in why
    world = held_to("share", {key: "one"}, {key: "one"})
    assert moved(world, redelivery=frozenset({GROUP}))[0] == "done"


@pytest.mark.parametrize(
    ("kind", "key", "told"),
    [
        ("consumer", "consumer.session.timeout.ms", True),
        ("share", "share.delivery.count.limit", True),
        ("streams", "streams.num.standby.replicas", True),
        ("consumer", "share.isolation.level", False),
        ("share", "consumer.session.timeout.ms", False),
        ("classic", "consumer.session.timeout.ms", False),
    ],
)
def test_other_settings_of_its_kind_are_named_and_no_reason_to_refuse(kind: str, key: str, told: bool) -> None:
    world = held_to(kind, {key: "45000", f"{kind}.new": "1"}, {key: "60000"})
    state, _, why = moved(world, redelivery=frozenset({GROUP}))
    assert (state, why) == ("done", "")
    assert any(f"{key}=45000 at onprem and 60000 at cloud. To keep it" in line for line in world.said) is told


def test_brokers_that_do_not_tell_are_said_to() -> None:
    world = held_to("consumer", {}, {})
    world.group_configs_untold = "GROUP_AUTHORIZATION_FAILED"
    assert moved(world)[0] == "done"
    assert any("onprem and cloud do not tell (GROUP_AUTHORIZATION_FAILED)" in line for line in world.said)
