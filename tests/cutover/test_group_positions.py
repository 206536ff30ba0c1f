"""Where a group goes on, in the small world: what it needs a position in, and what goes along with one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.grouped import CLICKS, ORDERS, Groups, inside, moved, renamed
from tests.cutover.world import GROUP, a_migration, a_plan, target_of
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    AskApproval,
    CommitOffsets,
    ReadCopies,
    ReadGroup,
)
from watershed.cutover.observations import ApprovalAnswer, Observation, ObservedCopies
from watershed.cutover.policy import build_wave_policy
from watershed.topology import compile_path


def test_a_group_needs_no_position_in_topics_that_it_does_not_read() -> None:
    world = Groups(reads=frozenset({"orders"}))
    world.reads = {GROUP: ("orders",)}
    del world.offsets["source"][GROUP][CLICKS]
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert {place.topic for each in world.commits for place in each.offsets} == {"dc.orders"}


def test_the_latest_record_is_that_of_the_first_look_however_long_the_copy_takes() -> None:
    world = Groups()
    stopped = {"at": 0}

    def hook(action: Action) -> Observation | None:
        if not world.apps[GROUP].running:
            world.offsets["source"][GROUP].pop(CLICKS, None)
        if isinstance(action, ReadCopies) and inside(world, "translate_offsets"):
            stopped["at"] = stopped["at"] or len(world.logs["source"][CLICKS])
            # the copy is always one step behind what is written
            held = {place: world._copied(place) for place in action.places}
            late = {p: replace(each, target_end=max(0, each.target_end - 1)) for p, each in held.items()}
            return ObservedCopies(int(world.now * 1000), late)
        return None

    world.hook = hook
    state, _, why = moved(world, uncommitted={GROUP: "latest"})
    assert (state, why) == ("done", "")
    [commit] = world.commits
    assert commit.offsets[target_of(CLICKS)] == world._copied(CLICKS).map.to_target(stopped["at"], 10_000)


def test_text_beside_an_offset_goes_along_where_it_can_mean_the_same() -> None:
    """Markers behind the position make distances differ; in `clicks` there are none."""
    world = Groups()
    world.behind = 6
    world.texts["source"] = {CLICKS: "bitmap", ORDERS: "other"}
    moved(world)
    [commit] = world.commits
    assert commit.texts == {target_of(CLICKS): "bitmap"}
    assert any("keeps text beside its offsets of orders-0, which stays behind" in line for line in world.said)


def test_a_text_that_a_slow_worker_replaced_with_its_mark_is_committed_again() -> None:
    """The number is the same: the worker carried the position to which the group had come."""
    world, place = Groups(), target_of(CLICKS)
    world.texts["source"] = {CLICKS: "bitmap"}

    def hook(action: Action) -> Observation | None:
        late = inside(world, "start_consumers") and len(world.commits) == 1
        if late and isinstance(action, ReadGroup) and action.side == "target":
            world.kept = {place: world.offsets["target"][GROUP][place]}
            world.texts["target"] = {}
        return None

    world.hook = hook
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert [each.texts for each in world.commits] == [{place: "bitmap"}] * 2
    assert any("a slow worker of flow" in line for line in world.said)


def test_streams_times_beside_offsets_always_go_along() -> None:
    world = Groups(kind="streams")
    world.texts["source"] = {ORDERS: "AgAAAZ", CLICKS: "AgAAAY"}
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert world.commits[0].texts == {target_of(ORDERS): "AgAAAZ", target_of(CLICKS): "AgAAAY"}


def test_a_commit_inside_an_open_transaction_is_waited_for() -> None:
    world, looks = Groups(), 0

    def hook(action: Action) -> Observation | None:
        nonlocal looks
        if isinstance(action, ReadGroup) and action.side == "source" and inside(world, "translate_offsets"):
            looks += 1
            if looks < 4:
                seen = world._group(int(world.now * 1000), "source", GROUP)
                offsets = {place: at for place, at in seen.offsets.items() if place != ORDERS}
                return replace(seen, offsets=offsets, unstable=frozenset({ORDERS}))
        return None

    world.hook = hook
    state, _, why = moved(world)
    assert (state, why) == ("done", "")
    assert target_of(ORDERS) in world.commits[0].offsets
    assert any("orders-0 is committed in a transaction that is still open" in line for line in world.said)


def test_a_partial_commit_is_finished() -> None:
    """C18: the driver died when some partitions were written."""
    world = Groups()

    def hook(action: Action) -> None:
        if isinstance(action, CommitOffsets) and action.side == "target" and not world.offsets["target"]:
            place, at = next(iter(action.offsets.items()))
            world.offsets["target"][GROUP] = {place: at}
            raise KeyboardInterrupt

    world.hook = hook
    log = FakeLog()
    with pytest.raises(KeyboardInterrupt):
        a_migration(world, log).run()
    assert len(world.offsets["target"][GROUP]) == 1
    world.now += 60
    result = a_migration(world, log, resume=True).run()
    assert (result.state, result.reason) == ("done", "")
    assert len(world.commits[0].offsets) == 3


@pytest.mark.parametrize("also", ["payments", "other"])
def test_a_group_moves_as_a_whole(also: str) -> None:
    world = Groups()
    world.offsets["source"][GROUP][TopicPartition(also, 0)] = 7
    state, step, why = moved(world)
    assert (state, step) == ("refused", "preflight")
    assert f"also reads {also}" in why
    assert f"--delete-offsets --group {GROUP} --topic {also}" in why


def test_two_groups_cannot_become_one() -> None:
    world = Groups()
    world.apps["ledger"] = world.apps[GROUP]
    plan = renamed(a_plan(consumers=(GROUP, "ledger")), (GROUP, "one"), ("ledger", "one"))
    state, step, why = moved(world, plan)
    assert (state, step) == ("refused", "preflight")
    assert "groups billing and ledger would both be one at cloud" in why


def test_who_reads_the_topics_and_is_not_moved_is_told() -> None:
    world = Groups()
    world.other_readers = {"audit": ("clicks", "orders")}
    asked: list[AskApproval] = []

    def approve(ask: AskApproval) -> ApprovalAnswer:
        asked.append(ask)
        return ApprovalAnswer(0, granted=True, by="ann")

    assert a_migration(world, FakeLog(), plan=a_plan(), approve=approve).run().state == "done"
    assert asked[0].evidence["groups_left_behind"] == {"audit": ["clicks", "orders"]}
    assert any("group audit reads clicks, orders at onprem and is not in wave all" in line for line in world.said)


def test_the_file_says_what_a_group_needs(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text("""
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: us}
clusters:
  onprem: {bootstrap: ['127.0.0.1:1']}
  cloud: {bootstrap: ['127.0.0.1:2']}
flows:
  - {source: onprem, target: cloud, topics: {include: [orders]}}
migration:
  flow: onprem-to-cloud
  groups:
    billing: {uncommitted: latest, session_timeout: 2m}
    audit: {redelivery: accept}
    totals: {state: rebuild}
  waves:
    - name: all
      topics: [orders]
      consumers: [billing, audit, totals]
      producers: [checkout]
      gates: {before: [{lag: {max_records: 0, hold: 5m}}]}
      rollback: {none: because this is a test}
""")
    migration = compile_path(path).migration
    assert migration is not None
    policy = build_wave_policy(migration.waves[0], migration)
    assert policy.uncommitted == {"billing": "latest"}
    assert (policy.redelivery, policy.rebuild) == ({"audit"}, {"totals"})
    assert [policy.empty_ms("billing", static=each) for each in (True, False)] == [135_000, 90_000]
    assert policy.empty_ms("audit", static=True) == 90_000
