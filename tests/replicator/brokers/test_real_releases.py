"""Copies from and to brokers of other releases: what their requests cannot say must not cost a record."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replicator.real import (
    WorkerProcess,
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    wait_progress,
    workers,
)
from tests.replicator.states_scene import (
    QUICK,
    create,
    delete_records,
    delete_topics,
    in_state,
    produce,
    report,
    typed,
    until,
    written,
)
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import read_flows
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.topic_names import is_stand_in_id
from watershed.clusters.wire.versions import Api
from watershed.lab import clusters
from watershed.replicator.apply import apply_plan
from watershed.replicator.apply_refusals import CannotApply
from watershed.replicator.copy.flow_epoch_fence import explain_fence_refusal
from watershed.replicator.ledger.ledger import read_ledger

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
# 2.4.1 gives topics no ids. 2.8.2 does, and is asked by name all the same; 3.9.1 is read by id and written to by name.
PAIRS = [("2.4.1", "2.8.2"), ("2.8.2", "3.9.1")]


# `make test` has the first pair, `make soak` both; more has `make soak-kafka` (tests/soak/kafka_matrix.py).
@pytest.fixture(
    scope="module",
    params=[PAIRS[0], pytest.param(PAIRS[1], marks=pytest.mark.soak)],
    ids=["-to-".join(pair) for pair in PAIRS],
)
def old_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Lab]:
    directory = tmp_path_factory.mktemp("releases")
    try:
        yield clusters.start_clusters(
            directory, ["onprem", "cloud"], kafka=dict(zip(("onprem", "cloud"), request.param, strict=True))
        )
    finally:
        clusters.end_clusters(directory)


def transact(settings: ConnectionSettings, topic: str, count: int) -> int:
    """Committed and aborted transactions in turn; the committed records."""
    sending = Producer(settings.librdkafka({"transactional.id": topic, "linger.ms": 0}))
    sending.init_transactions(60)
    for number in range(count):
        sending.begin_transaction()
        for part in range(10):
            sending.produce(topic, b"%d/%d" % (number, part), partition=part % 2)
        if number % 2:
            sending.abort_transaction(60)
        else:
            sending.commit_transaction(60)
    return 10 * ((count + 1) // 2)


@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.soak), "zstd"])
def test_records_arrive_once_though_the_worker_is_killed(old_pair, topic_name, tmp_path, codec):
    settings = settings_of(old_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2)
    sending = producer(settings["onprem"], **{"compression.type": codec})
    put(sending, topic_name, 3_000)
    sending.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        first = start()
        wait_progress(settings, plan, topic_name, 2, 1)
        put(sending, topic_name, 3_000, start=3_000)
        first.kill()
        sending.flush()
        start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == 6_000


@pytest.mark.soak
def test_transactions_arrive_without_what_was_aborted(old_pair, topic_name, tmp_path):
    settings = settings_of(old_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2)
    committed = transact(settings["onprem"], topic_name, 30)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == committed


@pytest.mark.soak
def test_partitions_that_are_added_are_copied(old_pair, topic_name, tmp_path):
    """The target's topic grows only with the topic that was copied: ids, or their stand-ins, are equal everywhere."""
    settings = settings_of(old_pair)
    with Admin(settings["onprem"]) as admin:
        made = admin.create_topic(topic_name, 1)
        assert admin.topic(topic_name) == made
    sending = producer(settings["onprem"])
    put(sending, topic_name, 100)
    sending.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
        with Admin(settings["onprem"]) as admin:
            admin.create_partitions(topic_name, 3)
        after = producer(settings["onprem"])
        for number in (1, 2):
            after.produce(topic_name, b"%d" % number, partition=number)
        assert after.flush(60) == 0
        wait_copied(settings, plan, topic_name, 3)
    assert assert_exact_copy(settings, plan, topic_name, 3) == 102


def make_anew(settings: ConnectionSettings, topic: str) -> bool:
    """With ZooKeeper a topic that no broker shows may still be in the way, and its leader may be long in coming."""
    client = AdminClient(settings.librdkafka())
    try:
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


@pytest.mark.soak
@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_a_topic_that_is_made_anew_is_not_taken_for_the_old_one(old_pair, topic_name, tmp_path, delivery):
    """With sequence numbers while a worker reads it, and in transactions while none runs."""
    settings = settings_of(old_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1)
    sending = producer(settings["onprem"])
    put(sending, topic_name, 100)
    sending.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery=delivery))
    with workers(plan, "cloud", tmp_path) as start:
        first = start()
        wait_copied(settings, plan, topic_name, 1)
        if delivery == "transactions":
            first.kill()
        delete_topics(settings["onprem"], topic_name)
        until(lambda: make_anew(settings["onprem"], topic_name), "the topic is there again")
        again = producer(settings["onprem"])
        put(again, topic_name, 500)
        assert again.flush(120) == 0
        if delivery == "transactions":
            start()

        def state() -> str:
            reports = read_statuses(settings["cloud"])
            return next((each.state for each in reports if each.flow == plan.flows[0].id), "")

        until(lambda: state() == "source_recreated", "the partition to stop", 120)
    assert len(read_all(settings["cloud"], topic_name, 1)[0]) == 100


@pytest.fixture(scope="module")
def old_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("old-target")
    try:
        clusters.start_clusters(directory, ["cloud"], kafka="2.4.1")
        yield directory
    finally:
        clusters.end_clusters(directory)


@pytest.fixture
def old_target(kafka_pair: clusters.Lab, old_folder: Path) -> dict[str, ConnectionSettings]:
    """`onprem` of the newest release, and `cloud` of 2.4.1: without ids, and it does not tell of producers."""
    return settings_of(kafka_pair) | settings_of(clusters.read_lab(old_folder))


@pytest.mark.soak
@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_a_target_that_tells_nothing_of_producers_gets_each_record_once(old_target, topic_name, tmp_path, delivery):
    """One worker is killed, another stands still until a third has gone on, and wakes up."""
    settings = old_target
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2)
    sending = producer(settings["onprem"])
    put(sending, topic_name, 3_000)
    sending.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery=delivery))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        first = start()
        wait_progress(settings, plan, topic_name, 2, 1)
        first.kill()
        put(sending, topic_name, 3_000, start=3_000)
        sending.flush()
        second = start()
        wait_progress(settings, plan, topic_name, 2, 3_001)
        second.send(signal.SIGSTOP)
        put(sending, topic_name, 3_000, start=6_000)
        sending.flush()
        start()
        wait_copied(settings, plan, topic_name, 2)
        second.send(signal.SIGCONT)
        put(sending, topic_name, 1_000, start=9_000)
        sending.flush()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == 10_000
    record = read_flows(settings["cloud"])[plan.flows[0].id]
    refused = explain_fence_refusal(record, settings["cloud"])
    if delivery == "sequence":
        assert "cannot be fenced at cloud" in refused
        assert "describe_producers in version 0: it does not know the request; Kafka 2.8 and newer have it" in refused
    else:
        assert refused == ""


@pytest.mark.soak
def test_records_that_retention_takes_from_such_a_target_do_not_stop_the_copy(old_target, topic_name, tmp_path):
    """Brokers before 2.4 forget the producer with its records, and answer UNKNOWN_PRODUCER_ID from then on."""
    settings = old_target
    create(settings["onprem"], topic_name)
    produce(settings["onprem"], topic_name, 0, 100)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        first = start()
        wait_copied(settings, plan, topic_name, 1)
        delete_records(settings["cloud"], topic_name, -1)
        produce(settings["onprem"], topic_name, 100, 100)
        wait_copied(settings, plan, topic_name, 1)
        delete_records(settings["cloud"], topic_name, -1)
        first.kill()
        produce(settings["onprem"], topic_name, 200, 100)
        start()
        wait_copied(settings, plan, topic_name, 1)
    there = read_all(settings["cloud"], topic_name, 1)[0]
    assert [(offset, key) for offset, (key, *_) in there] == [(n, b"%d" % n) for n in range(200, 300)]


@pytest.mark.soak
def test_such_a_target_that_forgot_us_takes_another_epoch(old_target, old_folder, topic_name, tmp_path):
    """Records are older than `transactional.id.expiration.ms` (7 days): a broker that starts does not remember them."""
    settings = old_target
    create(settings["onprem"], topic_name, retention_ms="-1")

    def put_old(first: int) -> None:
        sending = producer(settings["onprem"])
        for number in range(first, first + 100):
            sending.produce(topic_name, b"old", b"%d" % number, timestamp=int(time.time() * 1000) - 30 * 86_400_000)
        assert sending.flush(60) == 0

    put_old(0)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
        clusters.stop_lab_broker(old_folder, "cloud")
        clusters.restart_lab_broker(old_folder, "cloud")
        put_old(100)
        wait_copied(settings, plan, topic_name, 1)
    assert assert_exact_copy(settings, plan, topic_name, 1) == 200
    [(known, _)] = read_ledger(settings["cloud"], flow=plan.flows[0].id).partitions.values()
    assert (known.identity.epoch, known.identity.base) == (1, 100)


@pytest.mark.soak
@pytest.mark.parametrize("running", [True, False])
def test_such_a_target_topic_that_is_made_anew_stops_and_is_copied_again_by_order(
    old_target, topic_name, tmp_path, running
):
    """2.4.1 refuses to go on in it (UNKNOWN_PRODUCER_ID), and the empty log tells why. Newer brokers store one batch,
    whose offset tells."""
    settings = old_target
    create(settings["onprem"], topic_name)
    produce(settings["onprem"], topic_name, 0, 100)
    path = tmp_path / "topology.yaml"
    plan = applied(settings, written(path, settings, topic_name, [topic_name]))
    with workers(plan, "cloud", tmp_path, QUICK) as start:

        def is_running(worker: WorkerProcess) -> bool:
            seen = report(settings, plan, topic_name)
            return seen is not None and (seen.pid, seen.state) == (worker.pid, "running")

        def serve() -> WorkerProcess:
            worker = start()
            until(lambda: is_running(worker), "it copies")
            wait_copied(settings, plan, topic_name, 1)
            return worker

        serve().kill()
        worker = serve()  # this takeover told the ledger how far the log had been
        if not running:
            worker.kill()
        delete_topics(settings["cloud"], topic_name)
        until(lambda: make_anew(settings["cloud"], topic_name), "the topic is there again")
        produce(settings["onprem"], topic_name, 100, 100)
        if not running:
            worker = start()
        in_state(settings, plan, topic_name, "target_gone")
        assert typed("topology flow reseed FLOW FILE --topic TOPIC".replace("FLOW", plan.flows[0].id)
                     .replace("TOPIC", topic_name), path, "--yes", "--wait", "60") == 0  # fmt: skip
        wait_copied(settings, plan, topic_name, 1)
    there = read_all(settings["cloud"], topic_name, 1)[0]
    assert [key for _, (key, *_) in there] == [b"%d" % number for number in range(200)]


@pytest.mark.soak
def test_equal_offsets_are_refused_at_such_a_target_and_translated(old_target, topic_name, tmp_path):
    settings = old_target
    create(settings["onprem"], topic_name)
    produce(settings["onprem"], topic_name, 0, 100)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, offsets="aligned"))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
        note = in_state(settings, plan, topic_name, "running").note or ""
    assert "offsets are translated, not equal: the target cluster does not allow it" in note
    assert "describe_producers in version 0: it does not know the request; Kafka 2.8 and newer have it" in note
    assert assert_exact_copy(settings, plan, topic_name, 1) == 100


@pytest.mark.soak
def test_a_release_that_is_too_old_is_refused_before_anything_is_begun(kafka_pair, topic_name, tmp_path):
    """By apply, and by a worker that is started all the same."""
    try:
        old = clusters.start_clusters(tmp_path / "old", ["old"], kafka="2.1.1")
        settings = settings_of(kafka_pair) | settings_of(old)
        plan = plan_for(settings, topic_name, topic_name, routes=(("cloud", "old"),))
        with pytest.raises(CannotApply, match=r"flow cloud-to-old.* cluster old \(Kafka 2\.1\).* Kafka 2\.4 and newer"):
            apply_plan(plan, settings.__getitem__)
        with Admin(settings["old"]) as admin:
            assert not admin.topics()  # nothing was made
        with workers(plan, "old", tmp_path) as start:
            refused = start()
            until(lambda: not refused.runs(), "the worker ends")
            assert "of cluster old is too old to be asked" in refused.log.read_text()
            assert refused.stop() != 0
    finally:
        clusters.end_clusters(tmp_path / "old")


def test_requests_are_those_of_the_release(old_pair):
    """Otherwise this file would try nothing."""
    settings = settings_of(old_pair)
    for alias, each in settings.items():
        with open_connection(each) as connection:
            assert connection.versions.pick(Api.PRODUCE) < 13, alias
            has_no_ids = old_pair.clusters[alias].brokers[0].kafka == "2.4.1"
            assert {is_stand_in_id(topic.topic_id) for topic in connection.metadata().topics} == {has_no_ids}
