"""What stands beside the records, from the oldest sources: groups, rights, limits, settings, inventories, fences.

Kafka 0.11 has the first versions of what we ask; 2.4 is the oldest that most people still run. What a release cannot
tell is left out and said, with the command that does it by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as WirePartition

from tests.replicator.position_order import check_order_of_positions
from tests.replicator.real import plan_for, producer, put, settings_of
from tests.replicator.states_scene import until
from watershed.clusters import producer_fence
from watershed.clusters.admin import Admin
from watershed.clusters.errors import CannotFence, RequestUnsupported
from watershed.clusters.group_members import describe_group
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.inventory_scan import scan_cluster
from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.required_role_acls import CLUSTER_RESOURCE_NAME, RequiredRight
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.admin_reads import read_acls, read_topic_config_entries
from watershed.clusters.wire.admin_writes import create_acls, delete_acls
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import FindWriters
from watershed.cutover.live.fence_actions import LiveFences
from watershed.lab import clusters
from watershed.replicator.apply import apply_plan
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology.drift import FieldDrift, find_drift
from watershed.topology.inventory import Inventory, InventoryAcl
from watershed.topology.plan import seal_plan
from watershed.topology.sync_settings import QuotaSync, SyncSettings, UserSync

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RELEASES = ("0.11.0.3", "2.4.1")
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module", params=RELEASES)
def ends(
    request: pytest.FixtureRequest, kafka_pair: clusters.Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ConnectionSettings]]:
    """`onprem`: the old source; `cloud`: the target that all tests share."""
    directory = tmp_path_factory.mktemp("old")
    try:
        old = clusters.start_clusters(directory, ["onprem"], settings=AUTHORIZER, kafka=request.param)
        yield {"cloud": settings_of(kafka_pair)["cloud"]} | settings_of(old)
    finally:
        clusters.end_clusters(directory)


@pytest.fixture
def topic(ends: dict[str, ConnectionSettings], topic_name: str) -> str:
    with Admin(ends["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    return topic_name


def member_of(settings: ConnectionSettings, group: str, topic: str) -> Consumer:
    """A consumer that has its partitions."""
    found = Consumer(settings.librdkafka({"group.id": group}))
    found.subscribe([topic])

    def is_given() -> bool:
        found.poll(0.2)
        return bool(found.assignment())

    until(is_given, "the consumer has its partitions")
    return found


def test_groups_are_empty_or_alive_as_they_are(ends, topic):
    here, place = ends["onprem"], TopicPartition(topic, 0)
    with GroupOffsets(here) as groups:
        assert groups.commit(topic, {place: CommittedPosition(5, "kept")}) == {}
        assert groups.listed()[topic].state == "Empty"
        assert groups.held([topic])[topic].positions == {place: CommittedPosition(5, "kept")}
    alive = f"{topic}-alive"
    member = member_of(here, alive, topic)
    try:
        with GroupOffsets(here) as groups, Admin(here) as admin:
            assert groups.listed()[alive].state == "Stable"
            assert describe_group(groups, alive).members[0].topics == {topic}
            refused = groups.commit(alive, {place: CommittedPosition(1)})
            assert "a live group is never reset" in refused[place]
            assert (admin.group(alive).state, admin.group(alive).members) == ("Stable", 1)
            assert (admin.group(topic).state, admin.group(topic).members) == ("Empty", 0)
    finally:
        member.close()


def test_a_position_in_an_open_transaction_is_not_taken_for_the_one_before(ends, topic):
    here, place = ends["onprem"], TopicPartition(topic, 0)
    with GroupOffsets(here) as groups:
        assert groups.commit(topic, {place: CommittedPosition(5)}) == {}
    member = member_of(here, topic, topic)
    sending = Producer(here.librdkafka({"transactional.id": topic}))
    try:
        sending.init_transactions(60)
        sending.begin_transaction()
        sending.send_offsets_to_transaction([WirePartition(topic, 0, 12)], member.consumer_group_metadata(), 60)
        with GroupOffsets(here) as groups:
            held = groups.held([topic])[topic]
            assert (held.positions, held.unstable) == ({}, {place})
            sending.commit_transaction(60)
            until(lambda: not groups.held([topic])[topic].unstable, "the transaction has ended")
            assert groups.held([topic])[topic].positions[place].offset == 12
    finally:
        member.close()


def test_of_all_positions_the_one_that_was_appended_last_counts(ends, topic):
    check_order_of_positions(ends["onprem"], topic, topic)


def test_rights_that_the_release_does_not_tell_are_no_missing_rights(ends, topic):
    needed = [
        RequiredRight("onprem", "CLUSTER", CLUSTER_RESOURCE_NAME, "LITERAL", each, "test")
        for each in ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "ALTER_CONFIGS")
    ]
    needed += [
        RequiredRight("onprem", "TOPIC", topic, "LITERAL", "READ", "test"),
        RequiredRight("onprem", "TOPIC", "new-", "PREFIXED", "CREATE", "test"),
        RequiredRight("onprem", "GROUP", topic, "LITERAL", "READ", "test"),
        RequiredRight("onprem", "TRANSACTIONAL_ID", topic, "LITERAL", "WRITE", "test"),
    ]
    assert find_missing_rights(ends["onprem"], needed) == []
    with Admin(ends["onprem"]) as admin:
        assert not [name for name in admin.topics() if name.startswith("new-")]


def test_acls_are_read_given_and_taken(ends, topic):
    named = InventoryAcl(f"User:{topic}", "WRITE", "DENY", "TOPIC", topic, "LITERAL")
    with open_connection(ends["onprem"]) as source:
        assert create_acls(source, [named]) == {}
        until(lambda: named in (read_acls(source) or ()), "the right is there")
        prefix = replace(named, pattern="PREFIXED")
        if source.knows(30, 1):
            assert create_acls(source, [prefix]) == {}
            until(lambda: prefix in (read_acls(source) or ()), "the right on a prefix is there")
            assert delete_acls(source, [prefix]) == {}
        else:  # it would become a right on a name
            with pytest.raises(RequestUnsupported, match=r"create_acls in versions 1 to 3.* Kafka 2\.0"):
                create_acls(source, [prefix])
        assert delete_acls(source, [named]) == {}
        until(lambda: named not in (read_acls(source) or ()), "the right is gone")
        assert prefix not in (read_acls(source) or ())


def test_what_cannot_be_carried_over_is_left_out_and_said(ends, topic_name):
    old_configs = {"message.format.version": "0.11.0", "retention.ms": "86400000"}
    with Admin(ends["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1, old_configs)
    with open_connection(ends["onprem"]) as source:
        configs = read_topic_config_entries(source, [topic_name])[0][topic_name]
    assert {key: each.value for key, each in configs.items() if each.own} == old_configs
    [flow] = plan_for(ends, topic_name, topic_name).flows
    sync = SyncSettings(quotas=QuotaSync("once"), users=UserSync("once"))
    plan = plan_for(ends, topic_name, topic_name)
    plan = seal_plan(replace(plan, flows=(replace(flow, sync=sync, sync_configs="once"),)))
    inventory = Inventory({alias: scan_cluster(each, sample_s=0) for alias, each in ends.items()}, live=True)
    [withdrawn] = [each for each in find_drift(plan, inventory, ()) if each.field == "message.format.version"]
    assert (withdrawn.drift, withdrawn.applied) == ("unsupported", False)
    left: list[FieldDrift] = []
    assert [change for change in apply_plan(plan, ends.__getitem__, left=left.append) if change.error] == []
    with Admin(ends["cloud"]) as admin:
        assert admin.topic_configs([topic_name]) == {topic_name: {"retention.ms": "86400000"}}
    assert {each.kind: each.drift for each in left} == {"quotas": "unsupported", "users": "unsupported"}
    for each in left:
        assert "too old to be asked" in each.why
        assert "kafka-configs --zookeeper ZOOKEEPER --describe --entity-type users" in each.why
        assert f"kafka-configs --bootstrap-server {ends['cloud'].bootstrap[0]}" in each.why
    assert find_sync_differences(plan, ends.__getitem__) == left


def test_an_inventory_has_what_the_release_tells(ends, topic, request):
    sending = producer(ends["onprem"])
    put(sending, topic, 100)
    assert sending.flush(60) == 0
    found = scan_cluster(ends["onprem"], sample_s=0)
    release = request.node.callspec.params["ends"]
    assert release.startswith(str(found.kafka))
    assert found.topics[topic].records_end == 100
    assert found.acls is not None
    not_told = {line.partition(":")[0] for line in found.not_seen}
    assert not_told == {
        "SCRAM users",
        "client quotas",
        *({"log sizes of broker 1"} if release.startswith("0.11") else ()),
    }


def test_a_quota_fence_is_refused_with_what_there_is_instead(ends):
    with pytest.raises(CannotFence, match=r"quotas in ZooKeeper.* Kafka 2\.6 .*Use a fence of kind acl"):
        producer_fence.inspect_quota_fence(ends["onprem"], [("ann", None)], 1)


def test_who_writes_is_told_without_transactional_ids(ends, topic):
    sending = Producer(ends["onprem"].librdkafka({"transactional.id": topic}))
    sending.init_transactions(60)
    sending.begin_transaction()
    sending.produce(topic, b"late", partition=0)
    sending.commit_transaction(60)
    place = TopicPartition(topic, 0)
    plan = plan_for(ends, topic, topic)
    settings = {"source": ends["onprem"], "target": ends["cloud"]}
    seen = LiveFences(plan, settings, lambda: int(time.monotonic() * 1000)).writers(
        FindWriters("source", (place,), {place: 0})
    )
    assert [each.records for each in seen.writers if not each.marker] == [1]
    assert {each.who for each in seen.writers} == {""}
    assert seen.unnamed == "transactional ids are unknown: cluster onprem is older than Kafka 3.0"
