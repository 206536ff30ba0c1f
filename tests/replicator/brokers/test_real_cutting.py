"""A worker that stood still while its target was promoted writes nothing behind the applications."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.replicator.real import applied, plan_for, producer, put, read_all, settings_of, wait_copied, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.flow_records import read_flows, write_flow
from watershed.clusters.record_batch import build_simple_batch
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, ProducePartition
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.replicator.copy.flow_epoch_fence import explain_fence_refusal, fence_flow
from watershed.replicator.recovery.log_inspection import read_leader_logs

pytestmark = pytest.mark.kafka

PARTITIONS = 2


def ends(settings, topic: str) -> dict[TopicPartition, int]:
    with Admin(settings) as admin:
        found = admin.offsets([TopicPartition(topic, n) for n in range(PARTITIONS)], "read_uncommitted")
    return {place: span.end for place, span in found.items()}


def written(settings, topic: str, count: int) -> None:
    into = producer(settings["onprem"])
    put(into, topic, count)
    assert into.flush(60) == 0


@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_a_frozen_worker_is_kept_out(kafka_pair: Lab, topic_name: str, tmp_path: Path, delivery: str) -> None:
    settings = settings_of(kafka_pair)
    create_lab_topics(kafka_pair.clusters["onprem"].bootstrap, [topic_name], PARTITIONS)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery=delivery))
    flow, target = plan.flows[0].id, settings["cloud"]
    written(settings, topic_name, 300)
    with workers(plan, "cloud", tmp_path) as start:
        worker = start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
        worker.send(signal.SIGSTOP)
        before = ends(target, topic_name)
        copied = read_all(target, topic_name, PARTITIONS)
        record = read_flows(target)[flow]
        with ControlWriter(target, "test") as writer:
            write_flow(writer, record.with_state("stopped"))
        assert explain_fence_refusal(record, target) == ""
        found = fence_flow(record, before, target)
        assert fence_flow(record, before, target) == found, "it may be repeated"
        assert set(found.source_ids) == {topic_name}
        if delivery == "sequence":
            assert found.ends == before
            assert set(found.epochs.values()) == {1}
            assert ends(target, topic_name) == {place: end + 1 for place, end in before.items()}
            assert _late(target, topic_name, record.producer_id or -1) == error_codes.INVALID_PRODUCER_EPOCH
        written(settings, topic_name, 100)
        into = producer(target)
        into.produce(topic_name, b"of an application", partition=0)
        assert into.flush(60) == 0
        worker.send(signal.SIGCONT)
        deadline = time.monotonic() + 180
        while {each.state for each in read_statuses(target) if each.flow == flow} != {"stopped"}:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    now = read_all(target, topic_name, PARTITIONS)
    application = now[0].pop()
    assert application[1][1] == b"of an application"
    assert now == copied


def _late(target, topic: str, producer_id: int) -> int:
    """What the leader says to a batch that the worker might still hold."""
    led = read_leader_logs(target, [(topic, 0)], READ_UNCOMMITTED)[topic, 0]
    with closing(open_connection(target, led.leader)) as leader:
        _error, states = leader.describe_producers(topic, 0)
        assert {state.epoch for state in states if state.producer_id == producer_id} == {1}
        batch = build_simple_batch([b"late"], producer_id=producer_id, epoch=0, base_sequence=led.end - 1)
        leader.send_produce((ProducePartition(led.topic_id, 0, (batch,)),))
        (answer,) = leader.receive_produce()
    return answer.error
