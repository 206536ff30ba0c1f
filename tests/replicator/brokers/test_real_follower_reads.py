"""A worker near a rack reads the replica there (KIP-392): on three brokers, each in a rack of its own.

What each broker sends is counted at the worker's connections. The follower dies, later the leader does: the copy goes
on, and every record is at the target once and in order.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import QUICK_BROKER, Feeding, progress, times
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    wait_progress,
    workers,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.inventory_scan import scan_cluster
from watershed.lab import clusters as lab_clusters
from watershed.topology.drift import find_drift
from watershed.topology.inventory import Inventory
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.plan_builder import build_plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PARTITIONS = 2
LEADER, FOLLOWER = 1, 2
RACKS = {
    "broker.rack": "rack-{id}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
# A line for each answer: the broker's port, and the bytes of records. Times are shortened, so that the test need not
# last as long as they do.
COUNTED = """
import watershed.clusters.wire.connection as _wire, watershed.replicator.transport.replica_choice as _choice
_fetch = _wire.Connection.fetch
def _counted(self, *arguments, **more):
    answers = _fetch(self, *arguments, **more)
    with open({path!r}, "a") as told:
        print(self.address[1], sum(len(each.records) for each in answers), file=told)
    return answers
_wire.Connection.fetch = _counted
_choice.LEADER_ONLY_S, _choice.FOLLOWER_LEASE_S = 3.0, {lease}
"""


@pytest.fixture(scope="module")
def racks(tmp_path_factory, kafka_pair):
    """The three-node cluster's home, and the settings of all clusters."""
    home = tmp_path_factory.mktemp("racks")
    try:
        lab = lab_clusters.start_clusters(home, ["racks"], brokers=3, settings=QUICK_BROKER | RACKS)
        yield home, settings_of(kafka_pair) | settings_of(lab)
    finally:
        lab_clusters.end_clusters(home)


@pytest.fixture
def topic(racks, topic_name) -> str:
    """On all three brokers; LEADER leads."""
    admin = AdminClient(racks[1]["racks"].librdkafka())
    assignment = [[LEADER, FOLLOWER, 3]] * PARTITIONS
    admin.create_topics([NewTopic(topic_name, PARTITIONS, replica_assignment=assignment)])[topic_name].result(60)
    return topic_name


def sent(path: Path, home: Path) -> Counter[int]:
    """Bytes of records by the broker that sent them."""
    ids = {broker.port: broker.id for broker in lab_clusters.read_lab(home).cluster("racks").brokers}
    found: Counter[int] = Counter()
    for line in path.read_text().splitlines():
        port, size = map(int, line.split())
        if port in ids:
            found[ids[port]] += size
    return found


def wait_sent(path: Path, home: Path, broker: int, more: int) -> None:
    """Until this broker has sent so many bytes more."""
    before, deadline = sent(path, home)[broker], time.monotonic() + 120
    while (now := sent(path, home)[broker]) < before + more:
        assert time.monotonic() < deadline, f"broker {broker} sent {now - before} bytes of records in 120 s"
        time.sleep(0.2)


def wait_note(settings, topic: str, note: str) -> None:
    """Until the status of a partition says so."""
    deadline = time.monotonic() + 60
    while note not in (notes := [each.note for each in read_statuses(settings) if each.topic == topic]):
        assert time.monotonic() < deadline, notes
        time.sleep(0.5)


def feeding(settings, topic: str) -> Feeding:
    patience = {"socket.timeout.ms": 5_000, "request.timeout.ms": 4_000}
    into = producer(settings["racks"], **{"acks": "all", "enable.idempotence": True}, **patience)
    return Feeding(lambda count, start: put(into, topic, count, start=start, size=200), 600)


def near_plan(settings, topic: str):
    plan = plan_for(
        settings, topic, topic, routes=(("racks", "cloud"),), replication_factor=1, source_rack=f"rack-{FOLLOWER}"
    )
    return applied(settings, plan)


def test_a_scan_sees_where_replicas_stand_and_plan_and_lint_compare_it(racks, topic):
    _, settings = racks
    seen = Inventory({"racks": scan_cluster(settings["racks"], sample_s=0)}, live=True)
    assert seen.clusters["racks"].topics[topic].replica_racks == (("rack-1", "rack-2", "rack-3"),)
    text = f"""
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: stretched, owner: me}}
clusters:
  racks:
    bootstrap: ["{settings["racks"].bootstrap[0]}"]
    regions: [rack-1, rack-2, rack-3]
    stretch: {{sync_replicas: {{rack-1: 1, rack-2: 2}}, tie_breaker: rack-3}}
  cloud: {{bootstrap: ["{settings["cloud"].bootstrap[0]}"]}}
flows:
  - {{source: racks, target: cloud, topics: {{include: [{topic}]}}, workers: {{near: {{rack: rack-2}}}}}}
  - {{source: racks, target: cloud, suffix: x, topics: {{include: [x]}}, workers: {{near: {{rack: nowhere}}}}}}
"""
    loaded = parse_topology(text)
    assert loaded.topology is not None
    drift = find_drift(build_plan(loaded.topology, {}), seen, [])
    fields = [(each.name, each.field, each.live, each.wanted) for each in drift if each.cluster == "racks"]
    assert fields == [(topic, "replicas in rack-2", "1", "2"), (topic, "replicas in rack-3", "1", "0")]
    found = [each for each in lint_topology(loaded, seen).findings if each.rule in ("SYC526", "SYC527")]
    told = {each.message.partition(": ")[2] for each in found if topic in each.message}
    assert told == {
        "1 replica in rack-2, and 2 laid out",
        "1 replica in rack-3, and 0 laid out",
        "2 in sync suffice for a write, and one region has 2: acknowledged records may stand in one region only",
    }
    assert [each.message.partition(",")[0] for each in found if each.rule == "SYC527"] == [
        "readers of racks stand in rack `nowhere`"
    ]


def test_the_replica_in_the_workers_rack_serves_transactions_exactly(racks, topic, tmp_path):
    home, settings = racks
    told = tmp_path / "sent"
    plan = near_plan(settings, topic)
    with workers(plan, "cloud", tmp_path, times(session=3) + COUNTED.format(path=str(told), lease=60.0)) as start:
        committed = transactions(settings["racks"], topic, 20)
        start()
        committed += transactions(settings["racks"], topic, 40)
        wait_copied(settings, plan, topic, PARTITIONS)
    assert assert_exact_copy(settings, plan, topic, PARTITIONS) == committed
    by_broker = sent(told, home)
    print(f"bytes of records by broker: {dict(by_broker)}")
    assert by_broker[FOLLOWER] > 50 * committed  # a record and its part of a batch: 82 bytes
    assert by_broker[LEADER] == by_broker[3] == 0


@pytest.mark.parametrize("victim", [FOLLOWER, LEADER], ids=["the follower dies", "the leader dies"])
def test_a_broker_dies_and_the_copy_goes_on(racks, topic, tmp_path, victim):
    home, settings = racks
    told = tmp_path / "sent"
    plan = near_plan(settings, topic)
    with (
        workers(plan, "cloud", tmp_path, times(session=3) + COUNTED.format(path=str(told), lease=5.0)) as start,
        feeding(settings, topic) as fed,
    ):
        worker = start()
        wait_progress(settings, plan, topic, PARTITIONS, 600)
        wait_sent(told, home, FOLLOWER, 50_000)
        assert sent(told, home)[LEADER] == 0
        wait_note(settings["cloud"], topic, f"read from broker {FOLLOWER}, the follower in the workers' rack")
        lab_clusters.kill_lab_broker(home, "racks", victim)
        try:
            progress(settings["cloud"], topic, range(PARTITIONS), 1_500)
            if victim == FOLLOWER:
                wait_sent(told, home, LEADER, 50_000)
        finally:
            lab_clusters.restart_lab_broker(home, "racks", victim)
        if victim == FOLLOWER:  # it is in the rack, and is read again
            wait_sent(told, home, FOLLOWER, 50_000)
        records = fed.end()
        wait_copied(settings, plan, topic, PARTITIONS)
        assert "recovering" not in worker.log.read_text()
    assert assert_exact_copy(settings, plan, topic, PARTITIONS) == records
    print(f"bytes of records by broker: {dict(sent(told, home))}")
