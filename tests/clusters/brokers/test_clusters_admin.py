"""Administration, run against the cluster in memory and against a real broker."""

from __future__ import annotations

import pytest

from tests.clusters.sites import RealSite, Site
from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import GroupState, LogRange, TopicShape
from watershed.clusters.errors import (
    GroupNotEmpty,
    RequestRefused,
    TopicExists,
    TopicMissing,
    Unreachable,
    WrongCluster,
)
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition


def test_identity(site: Site) -> None:
    assert len(site.admin.cluster_id()) > 5
    assert site.admin.brokers() == 1
    site.admin.check_identity()  # nothing pinned


@pytest.mark.kafka
def test_wrong_cluster_is_named(onprem: ConnectionSettings) -> None:
    pinned = ConnectionSettings("onprem", onprem.bootstrap, cluster_id="Zr9bQ2mTRz2a0p1kq3uV7g")
    with Admin(pinned) as admin, pytest.raises(WrongCluster) as caught:
        admin.check_identity()
    with Admin(onprem) as admin:
        actual = admin.cluster_id()
    assert actual in str(caught.value)
    assert "pins Zr9bQ2mTRz2a0p1kq3uV7g" in str(caught.value)


def test_topics(site: Site, topic_name: str) -> None:
    assert site.admin.topic(topic_name) is None
    created = site.admin.create_topic(topic_name, 3)
    assert (created.name, created.partitions, created.replication_factor) == (topic_name, 3, 1)
    assert created.topic_id.int != 0
    assert site.admin.topic(topic_name) == created
    assert site.admin.topics()[topic_name] == created
    assert site.admin.create_topic(topic_name, 3) == created
    with pytest.raises(TopicExists, match=r"exists on cluster .* with 3 partitions, 4 were asked for"):
        site.admin.create_topic(topic_name, 4)
    with pytest.raises(RequestRefused):
        site.admin.create_topic(f"{topic_name}-r", 1, 2)


def test_configs(site: Site, topic_name: str) -> None:
    configs = {"retention.ms": "-1", "max.message.bytes": "2000000"}
    site.admin.create_topic(topic_name, 1, configs=configs)
    site.admin.create_topic(f"{topic_name}-plain", 1)
    found = site.admin.topic_configs([topic_name, f"{topic_name}-plain"])
    assert found == {topic_name: configs, f"{topic_name}-plain": {}}
    assert site.admin.broker_config("producer.id.expiration.ms") == "86400000"
    assert site.admin.broker_config("no.such.key") is None
    with pytest.raises(TopicMissing, match="no topic"):
        site.admin.topic_configs([f"{topic_name}-no"])


def test_growth(site: Site, topic_name: str) -> None:
    before = site.admin.create_topic(topic_name, 2)
    assert site.admin.shapes()[topic_name] == TopicShape(2, 1)
    grown = site.admin.create_partitions(topic_name, 5)
    assert (grown.partitions, grown.topic_id) == (5, before.topic_id)
    assert site.admin.offsets([TopicPartition(topic_name, 4)]) == {TopicPartition(topic_name, 4): LogRange(0, 0)}
    assert site.admin.create_partitions(topic_name, 5) == grown
    assert site.admin.create_partitions(topic_name, 3) == grown, "Kafka takes no partitions away"
    with pytest.raises(TopicMissing, match="no topic"):
        site.admin.create_partitions(f"{topic_name}-no", 2)
    assert f"{topic_name}-no" not in site.admin.shapes()


def test_inherited_configs_count_as_well(site: Site, topic_name: str) -> None:
    site.admin.create_topic(topic_name, 1, configs={"max.message.bytes": "2000000"})
    found = site.admin.effective_configs([topic_name])[topic_name]
    assert (found["max.message.bytes"], found["segment.bytes"]) == ("2000000", "1073741824")


@pytest.mark.kafka
def test_who_was_given_what(real_site: RealSite, topic_name: str) -> None:
    real_site.admin.create_topic(topic_name, 3)
    assert real_site.admin.group_assignment(f"{topic_name}-group") == {}
    real_site.join(f"{topic_name}-group", topic_name)
    given = real_site.admin.group_assignment(f"{topic_name}-group")
    real_site.end()
    assert given == {"watershed": [TopicPartition(topic_name, number) for number in range(3)]}


def test_offsets(site: Site, topic_name: str) -> None:
    site.admin.create_topic(topic_name, 2)
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    site.transaction(topic_name, [[b"a", b"b", b"c"]], commit=True)
    assert site.admin.offsets([first, second]) == {first: LogRange(0, 4), second: LogRange(0, 0)}
    site.delete_records(topic_name, 2)
    assert site.admin.offsets([first], "read_uncommitted") == {first: LogRange(2, 4)}
    assert site.admin.offsets([]) == {}
    for missing in (TopicPartition(topic_name, 2), TopicPartition(f"{topic_name}-no", 0)):
        with pytest.raises(TopicMissing) as caught:
            site.admin.offsets([first, missing])
        assert (caught.value.topic, caught.value.partition) == missing


def test_groups(site: Site, topic_name: str) -> None:
    group = f"{topic_name}-group"
    site.admin.create_topic(topic_name, 2)
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    assert site.admin.group(group) == GroupState(group, "Dead", "", 0, {})
    site.admin.commit_offsets(group, {first: 5, second: 0})
    assert site.admin.group(group) == GroupState(group, "Empty", "", 0, {first: 5, second: 0})
    site.admin.commit_offsets(group, {first: 3})  # backwards is allowed: a rollback needs it
    assert site.admin.group(group).offsets == {first: 3, second: 0}
    site.admin.commit_offsets(group, {})
    with pytest.raises(TopicMissing):
        site.admin.commit_offsets(group, {TopicPartition(f"{topic_name}-no", 0): 1})


def test_live_group_is_never_reset(site: Site, topic_name: str) -> None:
    group = f"{topic_name}-group"
    site.admin.create_topic(topic_name, 1)
    site.join(group, topic_name)
    before = site.admin.group(group)
    assert (before.state, before.members, before.protocol_type) == ("Stable", 1, "consumer")
    with pytest.raises(GroupNotEmpty, match=f"consumer group {group} .* still has members") as caught:
        site.admin.commit_offsets(group, {TopicPartition(topic_name, 0): 7})
    assert caught.value.group == group
    assert site.admin.group(group).offsets == before.offsets


@pytest.mark.kafka
def test_broker_refuses_a_live_group_too(onprem: ConnectionSettings, topic_name: str) -> None:
    """A consumer may join between our look at the group and the commit: the broker's answer means the same."""
    from tests.clusters.sites import RealSite
    from watershed.clusters.admin_requests import AdminRequests

    site = RealSite(onprem)
    site.admin.create_topic(topic_name, 1)
    site.join(topic_name, topic_name)
    try:
        with pytest.raises(GroupNotEmpty):
            AdminRequests(onprem, 15).commit(topic_name, {TopicPartition(topic_name, 0): 7})
    finally:
        site.end()


DOWN = ConnectionSettings("cloud", ("127.0.0.1:1",))
CALLS = {
    "cluster_id": lambda admin: admin.cluster_id(),
    "topics": lambda admin: admin.topics(),
    "topic": lambda admin: admin.topic("a"),
    "topic_configs": lambda admin: admin.topic_configs(["a"]),
    "create_topic": lambda admin: admin.create_topic("a", 1),
    "offsets": lambda admin: admin.offsets([TopicPartition("a", 0)]),
    "group": lambda admin: admin.group("g"),
    "commit_offsets": lambda admin: admin.commit_offsets("g", {TopicPartition("a", 0): 1}),
}


@pytest.mark.parametrize("call", CALLS)
def test_unreachable(call: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Admin(DOWN, timeout=1) as admin, pytest.raises(Unreachable) as caught:
        CALLS[call](admin)
    text = str(caught.value)
    assert text.startswith("cluster cloud does not answer at 127.0.0.1:1: ")
    assert "Connection refused" in text
    assert "clusters.cloud.bootstrap" in text
    assert (caught.value.alias, caught.value.exit_code) == ("cloud", 2)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("call", CALLS)
def test_fake_unreachable(call: str) -> None:
    cluster = FakeCluster("cloud")
    cluster.create_topic("a", 1)
    cluster.stop()
    with pytest.raises(Unreachable, match="cluster cloud does not answer"):
        CALLS[call](cluster)
    cluster.start()
    if call != "create_topic":
        CALLS[call](cluster)


def test_unknown_host() -> None:
    settings = ConnectionSettings("x", ("no-such-host.invalid:9092",))
    with Admin(settings, timeout=1) as admin, pytest.raises(Unreachable, match=r"no-such-host\.invalid:9092"):
        admin.topics()
