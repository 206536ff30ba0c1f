"""Discovery: places on the target, what stays when listings lag, and what it costs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from watershed.clusters.cluster_protocol import TopicShape
from watershed.clusters.errors import RequestRefused, Unauthorised, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.replicator.topic_mapping import HoldReason, MappedTopic, map_topics, place_topics
from watershed.replicator.worker.assignment import (
    assign_partitions,
    can_keep_copying,
    compute_quota_shares,
    needs_report,
)
from watershed.replicator.worker.topic_discovery import TopicDiscovery
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("glob", "t*"),)))


@pytest.fixture
def source() -> FakeCluster:
    return FakeCluster("a")


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster("b")


def again(flow: PlanFlow, found: list[MappedTopic], source: FakeCluster, target: FakeCluster) -> list[MappedTopic]:
    return map_topics(flow, source, target, {each.topic: each for each in found})


def test_a_new_topic_gets_its_place_with_partitions_and_configs(source, target):
    source.create_topic("t1", 3, 1, {"retention.ms": "1234567", "min.insync.replicas": "1"})
    (found,) = map_topics(FLOW, source, target)
    assert (found.topic, found.target_topic, found.partitions, found.copied, found.created) == ("t1", "t1", 3, 3, True)
    assert target.topics()["t1"].partitions == 3
    assert target.topic_configs(["t1"]) == {"t1": {"retention.ms": "1234567"}}
    (later,) = again(FLOW, [found], source, target)
    assert later == replace(found, created=False)


@pytest.mark.parametrize(
    ("flow", "configs"),
    [
        (FLOW, {"retention.ms": "5", "max.message.bytes": "3000000"}),
        (replace(FLOW, sync_configs="never"), {}),
        (replace(FLOW, sync_configs="never", configs_set=(("retention.ms", "9"),)), {"retention.ms": "9"}),
        (replace(FLOW, sync_configs_include=("retention.ms",)), {"retention.ms": "5"}),
        (replace(FLOW, sync_configs_exclude=("retention.ms",)), {"max.message.bytes": "3000000"}),
        (replace(FLOW, configs_set=(("max.message.bytes", "7"),)), {"retention.ms": "5", "max.message.bytes": "7"}),
    ],
)
def test_batches_of_a_source_that_takes_more_by_default_fit_as_well(target, flow, configs):
    source = FakeCluster("a", configs={"message.max.bytes": "3000000"})
    source.create_topic("t1", 1, 1, {"retention.ms": "5"})
    map_topics(flow, source, target)
    assert target.topic_configs(["t1"]) == {"t1": configs}


def test_the_target_grows_before_anything_is_copied(source, target):
    source.create_topic("t1", 2)
    found = map_topics(FLOW, source, target)
    target.produce("t1", 0, [b"copied"])
    source.create_partitions("t1", 5)
    (grown,) = again(FLOW, found, source, target)
    assert (grown.partitions, grown.copied, grown.grown, grown.held) == (5, 5, True, None)
    assert target.topics()["t1"].partitions == 5


def test_fixed_partitions_are_held_and_the_others_go_on(source, target):
    flow = replace(FLOW, grow=False)
    source.create_topic("t1", 2)
    found = map_topics(flow, source, target)
    source.create_partitions("t1", 3)
    (held,) = again(flow, found, source, target)
    assert target.topics()["t1"].partitions == 2
    assert (held.partitions, held.copied, held.held.state) == (3, 2, "unsupported")
    assert "has 3 partitions, the target topic t1 has 2" in held.held.error
    assert "`grow`" in held.held.remedy
    target.create_partitions("t1", 3)  # by hand, as the remedy says
    (free,) = again(flow, [held], source, target)
    assert (free.copied, free.held) == (3, None)


def test_a_topic_that_others_filled_is_not_changed(source, target):
    source.create_topic("t1", 4)
    target.create_topic("t1", 2)
    target.produce("t1", 1, [b"somebody's"])
    (held,) = map_topics(FLOW, source, target)
    assert target.topics()["t1"].partitions == 2
    assert (held.copied, held.held.state) == (2, "unsupported")
    assert "not this flow's" in held.held.error
    target.create_topic("t2", 2)
    source.create_topic("t2", 4)
    grown = map_topics(FLOW, source, target)[1]
    assert (grown.topic, grown.copied, grown.grown) == ("t2", 4, True), "an empty one is made ready"


def test_more_partitions_than_the_source_are_said(source, target):
    source.create_topic("t1", 2)
    target.create_topic("t1", 3)
    (found,) = map_topics(FLOW, source, target)
    assert (found.partitions, found.copied, found.held) == (2, 2, None)
    assert "has 3 partitions, the source topic 2" in found.note


def test_what_was_seen_once_stays_until_the_flow_lets_go(source, target):
    source.create_topic("t1", 4)
    found = map_topics(FLOW, source, target)
    lagging = place_topics(FLOW, {"t1": TopicShape(2, 1)}, target.shapes(), {"t1": found[0]}, source, target)
    assert (lagging[0].partitions, lagging[0].copied) == (4, 4)
    source.delete_topic("t1")
    gone = again(FLOW, found, source, target)
    assert [(each.topic, each.partitions) for each in gone] == [("t1", 4)]
    assert target.topics()["t1"].partitions == 4, "the copy is kept"
    assert "t1" not in source.topics()
    without = replace(FLOW, topics=TopicSelection(include=FLOW.topics.include, exclude=(Selector("literal", "t1"),)))
    assert again(without, found, source, target) == []


def test_a_deleted_target_is_not_made_again(source, target):
    source.create_topic("t1", 1)
    found = map_topics(FLOW, source, target)
    target.delete_topic("t1")
    (after,) = again(FLOW, found, source, target)
    assert not after.created
    assert "t1" not in target.topics()


def test_a_topic_created_again_with_more_partitions_does_not_grow_the_old_copy(source, target):
    first = source.create_topic("t1", 2)
    (found,) = map_topics(FLOW, source, target)
    known = replace(found, source_ids=frozenset({first.topic_id}))
    source.delete_topic("t1")
    second = source.create_topic("t1", 4)
    (held,) = again(FLOW, [known], source, target)
    assert (held.copied, held.held.state) == (2, "source_recreated")
    assert str(second.topic_id) in held.held.error
    assert target.topics()["t1"].partitions == 2
    accepted = replace(known, source_ids=frozenset({first.topic_id, second.topic_id}))  # reseeded by order
    (grown,) = again(FLOW, [accepted], source, target)
    assert (grown.copied, grown.grown) == (4, True)


class Refusing(FakeCluster):
    """Refuses to create or to grow topics while `reason` is set."""

    reason: Exception | None = None

    def create_topic(self, *args, **more):
        if self.reason is not None:
            raise self.reason
        return super().create_topic(*args, **more)

    def create_partitions(self, *args, **more):
        if self.reason is not None:
            raise self.reason
        return super().create_partitions(*args, **more)


def test_a_refused_place_holds_its_topic_only_and_is_asked_for_again(source):
    target = Refusing("b")
    source.create_topic("t1", 2)
    source.create_topic("t2", 2)
    target.create_topic("t2", 2)
    target.reason = Unauthorised("not you", alias="b")
    held, fine = map_topics(FLOW, source, target)
    assert (held.topic, held.copied, held.held.state, held.held.cause) == ("t1", 0, "unauthorised", target.reason)
    assert (fine.topic, fine.copied, fine.held) == ("t2", 2, None)
    target.reason = RequestRefused("too many replicas", alias="b")
    assert again(FLOW, [held, fine], source, target)[0].held.state == "retrying"
    target.reason = None
    after = again(FLOW, [held, fine], source, target)
    assert [(each.created, each.copied, each.held) for each in after] == [(True, 2, None), (False, 2, None)]
    source.create_partitions("t2", 4)
    target.reason = Unauthorised("not you", alias="b")
    assert [(each.copied, each.held is None) for each in again(FLOW, after, source, target)] == [(2, True), (2, False)]
    target.reason = Unreachable("nobody there", alias="b")
    with pytest.raises(Unreachable):
        again(FLOW, after, source, target)


def test_a_target_that_stamps_records_holds_all_of_the_topic_until_it_is_told_not_to(source, target):
    source.create_topic("t1", 2)
    stamping = target.create_topic("t1", 2, configs={"message.timestamp.type": "LogAppendTime"})
    (held,) = map_topics(FLOW, source, target)
    assert (held.copied, held.refused.state) == (2, "append_time")
    assert "log.message.timestamp.type" in held.refused.error
    assert "--entity-name t1" in held.refused.remedy
    waiting = assign_partitions({"flow-0": record_of()}, {"flow-0": [held]}, range(16), {})
    assert [place.held for place in waiting.values()] == [held.refused] * 2
    target._configs[stamping.name]["message.timestamp.type"] = "CreateTime"
    (free,) = again(FLOW, [held], source, target)
    assert free.refused is None


@pytest.mark.parametrize("flow", [FLOW, replace(FLOW, sync_configs="never")])
def test_created_topics_keep_timestamps_whatever_the_brokers_do_by_default(source, flow):
    target = FakeCluster("b", configs={"log.message.timestamp.type": "LogAppendTime"})
    source.create_topic("t1", 1)
    (created,) = map_topics(flow, source, target)
    assert target.topic_configs(["t1"]) == {"t1": {"message.timestamp.type": "CreateTime"}}
    assert created.refused is None
    target.create_topic("t2", 1)
    source.create_topic("t2", 1)
    assert [each.refused is None for each in map_topics(flow, source, target)] == [True, False]


def test_a_held_topic_is_asked_about_at_every_discovery():
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("t1", 1)
    target.create_topic("t1", 1, configs={"message.timestamp.type": "LogAppendTime"})
    discovery, _ = discovery_of(source, target)
    flows = {"flow-0": record_of(discovery_ms=10)}
    settle(discovery, flows, lambda: discovery.topics)
    assert discovery.topics["flow-0"][0].refused is not None
    target._configs["t1"]["message.timestamp.type"] = "CreateTime"
    settle(discovery, flows, lambda: discovery.topics["flow-0"][0].refused is None)
    discovery.close()


class WithoutCreate(FakeCluster):
    denied = True

    def create_topic(self, name, partitions, replication_factor=None, configs=None):
        if self.denied:
            raise Unauthorised("not you", alias="b")
        return super().create_topic(name, partitions, replication_factor, configs)


def test_limits_of_a_topic_made_by_hand_are_asked_before_its_first_batch():
    """While it was absent it counted as asked; then it was copied for up to 60 s without the check."""
    source, target = FakeCluster("a"), WithoutCreate("b")
    source.create_topic("t1", 1)
    discovery, _ = discovery_of(source, target)
    flows = {"flow-0": record_of(discovery_ms=10)}
    settle(discovery, flows, lambda: discovery.topics and not discovery._asked)
    assert discovery.topics["flow-0"][0].held is not None
    target.denied = False
    target.create_topic("t1", 1, configs={"message.timestamp.type": "LogAppendTime"})
    settle(discovery, flows, lambda: discovery.topics["flow-0"][0].held is None)
    assert discovery.topics["flow-0"][0].refused is not None
    discovery.close()


class Counting(FakeCluster):
    listings = 0

    def shapes(self):
        self.listings += 1
        return super().shapes()


def discovery_of(*clusters: FakeCluster, copied=lambda _flows: {}) -> tuple[TopicDiscovery, list[str]]:
    by_alias = {cluster.settings.alias: cluster for cluster in clusters}
    opened: list[str] = []

    def administer(settings):
        opened.append(settings.alias)
        return by_alias[settings.alias]

    def connect(alias):
        return by_alias[alias].settings

    return TopicDiscovery(by_alias["b"].settings, connect, copied, administer=administer), opened


def settle(discovery: TopicDiscovery, flows: dict[str, FlowRecord], done) -> None:
    deadline = time.monotonic() + 180
    while not done():
        assert time.monotonic() < deadline, discovery.topics
        discovery.step(flows)
        time.sleep(0.005)


def record_of(number: int = 0, **flow) -> FlowRecord:
    return FlowRecord(replace(FLOW, id=f"flow-{number}", **flow), "sha256:0", "t")


def test_fifty_flows_share_clients_and_listings():
    source, target = Counting("a"), Counting("b")
    source.create_topic("t1", 1)
    discovery, opened = discovery_of(source, target)
    flows = {f"flow-{number}": record_of(number) for number in range(50)}
    settle(discovery, flows, lambda: len(discovery.topics) == 50)
    assert sorted(opened) == ["a", "b"]
    assert (source.listings, target.listings) == (1, 1)
    discovery.close()


def test_growth_and_a_new_topic_are_found_and_the_version_moves_only_then():
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("t1", 1)
    discovery, _ = discovery_of(source, target)
    flows = {"flow-0": record_of(discovery_ms=10)}
    settle(discovery, flows, lambda: discovery.topics)
    settle(discovery, flows, lambda: not discovery.topics["flow-0"][0].created or discovery.version == 1)
    source.create_topic("t2", 2)
    source.create_partitions("t1", 2)
    settle(discovery, flows, lambda: [each.copied for each in discovery.topics["flow-0"]] == [2, 2])
    version = discovery.version
    end = time.monotonic() + 0.2
    settle(discovery, flows, lambda: time.monotonic() > end)
    assert discovery.version <= version + 1  # the marks `created` and `grown` may go once
    discovery.close()


class Noting:
    """Decisions about equal offsets that add a note to every topic, as those of topics that keep other offsets do."""

    rounds = 0

    def placed(self, _flow, found, _source, _target):
        self.rounds += 1
        return [replace(each, note="; ".join(filter(None, (each.note, "translated")))) for each in found]


def test_what_is_decided_about_a_topic_is_noted_once_in_every_round_alike():
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("t1", 1)
    discovery, _ = discovery_of(source, target)
    discovery.decisions = noting = Noting()
    flows = {"flow-0": record_of(discovery_ms=10)}
    settle(discovery, flows, lambda: noting.rounds >= 5)
    settle(discovery, flows, lambda: discovery.topics)
    assert [each.note for each in discovery.topics["flow-0"]] == ["translated"]
    assert discovery.version <= 2  # the mark `created` may go
    discovery.close()


def test_what_the_ledger_knows_is_there_although_the_source_has_it_no_longer():
    source, target = FakeCluster("a"), FakeCluster("b")
    gone = MappedTopic("t9", "t9", 3, created=False, copied=3)
    discovery, _ = discovery_of(source, target, copied=lambda _flows: {"flow-0": {"t9": gone}})
    settle(discovery, {"flow-0": record_of()}, lambda: discovery.topics)
    assert [(each.topic, each.partitions) for each in discovery.topics["flow-0"]] == [("t9", 3)]
    assert target.topics() == {}
    discovery.close()


def test_a_source_that_is_down_delays_its_own_flows_only():
    down, up, target = FakeCluster("a"), FakeCluster("c"), FakeCluster("b")
    down.stop()
    up.create_topic("t1", 1)
    discovery, _ = discovery_of(down, up, target)
    flows = {"flow-0": record_of(0), "flow-1": record_of(1, source="c")}
    settle(discovery, flows, lambda: "flow-1" in discovery.topics)
    assert "flow-0" not in discovery.topics
    discovery.close()


def test_a_fault_in_a_job_is_tried_again_and_others_go_on():
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("t1", 1)
    faults = [RuntimeError("nobody thought of it"), TypeError("nor of this")]

    def copied(_target):
        if faults:
            raise faults.pop()
        return {}

    discovery, _ = discovery_of(source, target, copied=copied)
    flows = {"flow-0": record_of()}
    while faults:
        discovery.step(flows)
        for flow in discovery._flows.values():
            flow.due = 0.0
    settle(discovery, flows, lambda: discovery.topics)
    discovery.close()


def test_a_flow_that_is_gone_leaves_nothing():
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("t1", 1)
    discovery, _ = discovery_of(source, target)
    settle(discovery, {"flow-0": record_of()}, lambda: discovery.topics)
    discovery.step({})
    assert discovery.topics == {}
    discovery.close()


def test_places_follow_slots_placement_and_selection():
    record = record_of()
    topics = {"flow-0": [MappedTopic("t1", "t1", 4, created=False, copied=4, note="said once")]}
    everywhere = assign_partitions({"flow-0": record}, topics, range(16), {})
    assert sorted(key.partition for key in everywhere) == [0, 1, 2, 3]
    assert [place.hint for _, place in sorted(everywhere.items())] == ["said once", "", "", ""]
    own = next(place.serving for key, place in everywhere.items() if key.partition == 2)
    other = (own + 1) % 16
    placed = {"flow-0|t1|2": other}
    assert assign_partitions({"flow-0": record}, topics, range(16), placed)["flow-0", "t1", "t1", 2].serving == other
    assert ("flow-0", "t1", "t1", 2) not in assign_partitions({"flow-0": record}, topics, {own}, placed)
    in_transactions = replace(record, flow=replace(record.flow, delivery="transactions"))
    assert ("flow-0", "t1", "t1", 2) in assign_partitions({"flow-0": in_transactions}, topics, {own}, placed)
    unselected = replace(record, flow=replace(record.flow, topics=TopicSelection(include=(Selector("literal", "x"),))))
    assert assign_partitions({"flow-0": unselected}, topics, range(16), {}) == {}


def test_start_latest_counts_for_what_existed_when_the_flow_first_saw_it():
    record = replace(record_of(start="latest"), existed={"t1": 2})
    assert [record.start_of("t1", number) for number in range(3)] == ["latest", "latest", "earliest"]
    assert record.start_of("t2", 0) == "earliest"
    assert FlowRecord.from_json(record.to_json()) == record
    assert replace(record, existed=None).start_of("t2", 0) == "latest", "written by an older version"
    assert record_of().start_of("t1", 0) == "earliest"


def test_where_a_flow_was_told_to_begin_counts_before_its_start():
    told = record_of(start="latest").with_beginnings({"t1": {0: 7}}).with_beginnings({"t1": {1: 9}, "t2": {0: 0}})
    assert [told.start_of("t1", number) for number in range(3)] == [7, 9, "latest"]
    assert told.start_of("t2", 0) == 0
    assert told.with_beginnings({"t1": {0: 8}}).start_of("t1", 0) == 8, "a topic that was made again begins elsewhere"
    assert FlowRecord.from_json(told.to_json()) == told
    older = {key: value for key, value in told.to_json().items() if key != "begins"}
    assert FlowRecord.from_json(older).begins == {}, "written by an older version"


def test_reports_are_worth_writing_when_they_say_something_new_or_five_minutes_have_passed():
    last = PartitionStatus("f", "t", "t", 0, "running", rate_bytes=0.0, event_age_ms=10, at_ms=1_000)
    assert needs_report(last, None)
    assert not needs_report(replace(last, at_ms=2_000, event_age_ms=1_010), last)
    assert needs_report(replace(last, at_ms=2_000, target_end=5), last)
    assert not needs_report(replace(last, at_ms=2_000, lag_ms=1_000, source_seen_ms=2_000), last)
    assert needs_report(replace(last, at_ms=301_000), last)


def test_a_copy_goes_on_when_only_what_is_discovered_has_changed():
    assert can_keep_copying(
        FLOW, replace(FLOW, topics=TopicSelection(include=()), discovery_ms=5, workers=4, grow=False)
    )
    assert not can_keep_copying(FLOW, replace(FLOW, quota=5))
    assert not can_keep_copying(FLOW, replace(FLOW, topics=TopicSelection(include=()), isolation="read_uncommitted"))


def test_retired_topics_have_no_place_and_are_taken_up_again():
    record = record_of()
    topics = {"flow-0": [MappedTopic(name, name, 1, created=False, copied=1) for name in ("t1", "t2")]}
    moved = record.without(["t1"])
    assert {key.topic for key in assign_partitions({"flow-0": moved}, topics, range(16), {})} == {"t2"}
    assert compute_quota_shares(
        assign_partitions({"flow-0": moved}, topics, range(16), {}), {"flow-0": moved}, topics
    ) == {"flow-0": 1.0}
    assert not moved.selects("t1")
    assert FlowRecord.from_json(moved.to_json()) == moved
    assert moved.with_topics_again(["t1", "never retired"]) == record
    known = {name: content for name, content in record.to_json().items() if name != "retired"}
    assert FlowRecord.from_json(known) == record  # written before there was such a thing


def test_a_retired_topic_is_neither_found_nor_grown_nor_made_again():
    """Its applications have moved: what is done to it at the source says nothing of the target any more."""
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("t1", 1)
    source.create_topic("t2", 1)
    discovery, _ = discovery_of(source, target)
    record = record_of(discovery_ms=10)
    settle(discovery, {"flow-0": record}, lambda: len(discovery.topics.get("flow-0", [])) == 2)
    moved = {"flow-0": record.without(["t1"])}
    source.create_partitions("t1", 3)
    settle(discovery, moved, lambda: [each.topic for each in discovery.topics["flow-0"]] == ["t2"])
    source.create_partitions("t2", 2)
    settle(discovery, moved, lambda: discovery.topics["flow-0"][0].copied == 2)
    assert target.topics()["t1"].partitions == 1
    settle(discovery, {"flow-0": record}, lambda: target.topics()["t1"].partitions == 3)
    discovery.close()


def test_of_a_flow_that_its_clusters_cannot_serve_everything_is_held_until_they_can(source, target):
    source.create_topic("t1", 2)
    hold = HoldReason("unsupported", "no idempotence", "upgrade b")
    holds: list[HoldReason | None] = [hold]
    discovery, _ = discovery_of(source, target)
    discovery.find_hold = lambda _record: holds[0]
    record = record_of(discovery_ms=10)
    settle(discovery, {"flow-0": record}, lambda: "flow-0" in discovery.topics)
    assigned = assign_partitions({"flow-0": record}, discovery.topics, set(range(16)), {})
    assert [each.held for each in assigned.values()] == [hold, hold]
    holds[0] = None
    settle(discovery, {"flow-0": record}, lambda: discovery.topics["flow-0"][0].refused is None)
    discovery.close()
