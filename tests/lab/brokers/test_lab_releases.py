"""Brokers of other Kafka releases beside each other, one with a ZooKeeper: up, killed, up again, down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from watershed.cli.lab import lab as command
from watershed.lab import clusters
from watershed.lab.detached_process import find_by_argument, is_alive, kill_process

pytestmark = pytest.mark.kafka


@pytest.mark.soak
def test_a_zookeeper_cluster_and_an_older_kraft_cluster_live_through_kills(tmp_path: Path) -> None:
    home = tmp_path / "lab"
    up = ["up", "--names", "old,kraft", "--kafka", "old=2.4.1,kraft=3.9.1", "--format", "json", "--dir", str(home)]
    try:
        done = CliRunner().invoke(command, up)
        assert done.exit_code == 0, done.output
        shown = {each["alias"]: each for each in json.loads(done.output)["clusters"]}
        assert [each["brokers"][0]["kafka"] for each in shown.values()] == ["2.4.1", "3.9.1"]
        assert [each["zookeeper"] is None for each in shown.values()] == [False, True]
        for cluster in shown.values():
            write_record(cluster["bootstrap"])

        first = clusters.read_lab(home).cluster("old")
        assert first.zookeeper
        assert first.zookeeper.process
        clusters.kill_lab_broker(home, "old")
        kill_process(first.zookeeper.process)
        assert CliRunner().invoke(command, ["status", "--dir", str(home)]).exit_code == 1
        done = CliRunner().invoke(command, [*up[:3], *up[5:]])  # without --kafka: with the release that it had
        assert done.exit_code == 0, done.output
        again = clusters.read_lab(home).cluster("old")
        assert (again.cluster_id, again.bootstrap) == (first.cluster_id, first.bootstrap)
        assert again.brokers[0].pid not in (None, first.brokers[0].pid)
        assert [read_record(cluster["bootstrap"]) for cluster in shown.values()] == [b"kept", b"kept"]

        running = [each.process for each in (*again.brokers, again.zookeeper) if each]
    finally:
        clusters.end_clusters(home)
    assert not any(map(is_alive, running))
    assert find_by_argument(f"-Dwatershed.zookeeper={home}/old/zookeeper") is None
    assert not home.exists()


def write_record(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("kept", b"kept")
    assert producer.flush(60) == 0


def read_record(bootstrap: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("kept", 0, 0)])
        [record] = consumer.consume(1, 60)
        return record.value()
    finally:
        consumer.close()
