"""Desired state of others, and of other versions: what cannot be read is told and changes nothing."""

from __future__ import annotations

import json
import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.errors import Unauthorised
from watershed.clusters.fleet import SupervisorRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.producer_registry import ProducerRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.loop_guard import UNKNOWN_PATH
from watershed.replicator.worker.desired_state import DesiredState
from watershed.replicator.worker.loop_guards import build_producer_paths
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7)
WRITTEN = json.dumps(RECORD.to_json()).encode()


@pytest.fixture
def desired():
    state = DesiredState(ConnectionSettings("b", ("127.0.0.1:1",)))
    yield state
    state.close()


@pytest.mark.parametrize(
    ("key", "payload"),
    [
        ("a-to-b", b"not json"),
        ("a-to-b", b"\xff\xfe"),
        ("a-to-b", b"[]"),
        ("a-to-b", b'{"schema": 0}'),
        ("a-to-b", b'{"schema": 1, "flow": 5}'),
        ("order|x", b"3"),
        ("fleet/x", b"[1]"),
        ("placement|x", b'"text"'),
        ("producer|5", b"null"),
    ],
)
def test_a_record_that_cannot_be_read_is_told_and_the_last_one_counts(desired, caplog, key, payload):
    desired._take("a-to-b", WRITTEN, 7)
    with caplog.at_level(logging.ERROR, "watershed.worker"):
        desired._take(key, payload, 7)
    assert desired.flows == {"a-to-b": RECORD}
    assert list(desired.unreadable) == [key]
    assert [(each.message, each.key, each.partition, each.offset) for each in caplog.records] == [
        ("record unreadable", key, 0, 7)
    ]
    desired._take(key, None, 7)
    assert desired.unreadable == {}


def test_a_supervisor_whose_epoch_is_over_does_not_count(desired):
    def write(epoch, holder, **more):
        record = SupervisorRecord("shop", "b", epoch, holder, **more)
        desired._take(record.key, json.dumps(record.to_json()).encode(), 7)
        return record

    write(3, "first")
    last = write(4, "second", ready=True)
    write(3, "first", ready=True)  # it hung, and wakes up
    write(4, "first")
    assert list(desired.supervisors.values()) == [last]
    assert desired.overtaken == {last.key}
    last = write(4, "second", note="again")
    assert list(desired.supervisors.values()) == [last]
    assert desired.overtaken == set()


def test_a_breach_that_comes_late_does_not_hide_the_next_one(desired):
    """The worker that wrote it hung, and had not read that breach 1 was answered and 2 is open."""

    def write(number):
        breach = BudgetBreach("a-to-b", number, "pause", "slo.lag.max", 1, 2, "orders", 0, "w1", 3)
        desired._take(breach.key, json.dumps(breach.to_json()).encode(), 7)
        return breach

    write(1)
    open_one = write(2)
    write(1)
    assert desired.breaches == {open_one.key: open_one}
    assert desired.overtaken == {open_one.key}
    write(2)  # somebody has restored it
    assert desired.overtaken == set()
    latest = write(3)
    assert desired.breaches == {latest.key: latest}
    write(2)
    desired._take(latest.key, None, 7)
    assert (desired.breaches, desired.overtaken) == ({}, set())


class Electing:
    """Answers as a broker does that has just come back: first with the codes, then with the log's ends."""

    def __init__(self, *codes):
        self.codes = list(codes)

    def get_watermark_offsets(self, place, timeout):
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 0, 0

    def close(self):
        pass


def test_a_worker_that_starts_while_a_leader_is_chosen_asks_again(desired):
    desired.close()
    desired.there = True
    desired._consumer = Electing(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    desired.catch_up()
    assert desired._consumer.codes == []
    desired._consumer = Electing(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.NOT_LEADER_FOR_PARTITION)
    with pytest.raises(Unauthorised):
        desired.catch_up()
    assert desired._consumer.codes == [KafkaError.NOT_LEADER_FOR_PARTITION]


def test_the_loop_guard_knows_a_producer_by_its_last_readable_record(desired):
    producer = ProducerRecord(5, "a-to-b", ("a",), "sequence", "shop")
    desired._take(producer.key, json.dumps(producer.to_json()).encode(), 7)
    for key in ("order|x", "a-to-b", producer.key, "producer|x", "producer|6"):
        desired._take(key, b"not json", 7)
    assert build_producer_paths(desired) == {5: ("a",), 6: UNKNOWN_PATH}
    desired._take("producer|6", None, 7)
    assert build_producer_paths(desired) == {5: ("a",)}
