"""Targets that put their own time into records: nothing is copied into them, nor silently changed."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.replicator.real import applied, assert_exact_copy, plan_for, producer, put, settings_of, wait_copied, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings

pytestmark = pytest.mark.kafka


def stamps(settings: ConnectionSettings, topic: str, kind: str) -> None:
    entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": ",".join(settings.bootstrap)})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def in_state(settings: ConnectionSettings, topic: str, state: str) -> PartitionStatus:
    deadline = time.monotonic() + 180
    found: list[PartitionStatus] = []
    while time.monotonic() < deadline:
        found = [each for each in read_statuses(settings) if each.topic == topic and each.state == state]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"{topic} is not {state}: {[each for each in read_statuses(settings) if each.topic == topic]}")


@pytest.mark.parametrize("delivery", ["sequence", pytest.param("transactions", marks=pytest.mark.soak)])
def test_a_stamping_topic_waits_and_one_changed_meanwhile_is_loud(kafka_pair, topic_name, tmp_path, delivery):
    settings = settings_of(kafka_pair)
    onprem, cloud = settings["onprem"], settings["cloud"]
    with Admin(onprem) as here, Admin(cloud) as there:
        here.create_topic(topic_name, 1, 1, {})
        there.create_topic(topic_name, 1, 1, {"message.timestamp.type": "LogAppendTime"})
    into = producer(onprem)
    put(into, topic_name, 50)
    into.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery=delivery))
    with workers(plan, "cloud", tmp_path) as start:
        worker = start()
        held = in_state(cloud, topic_name, "append_time")
        assert "message.timestamp.type=LogAppendTime" in held.error
        assert held.target_end <= 0, "nothing was copied"
        stamps(cloud, topic_name, "CreateTime")
        wait_copied(settings, plan, topic_name, 1)
        assert assert_exact_copy(settings, plan, topic_name, 1) == 50
        in_state(cloud, topic_name, "running")  # or what was told before could be taken for what follows

        stamps(cloud, topic_name, "LogAppendTime")
        put(into, topic_name, 5, start=50)
        into.flush()
        status = in_state(cloud, topic_name, "append_time")
        assert status.error is not None
        assert worker.runs()
    told = worker.log.read_text()
    assert "put its own time" in told, told
