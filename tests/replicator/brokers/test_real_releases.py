"""Copies from and to brokers of other releases: what their requests cannot say must not cost a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from clusters.admin import Admin
from clusters.wire.connection import open_connection
from clusters.wire.topic_names import is_stand_in_id
from clusters.wire.versions import Api
from lab import clusters
from replicator.apply import apply_plan
from replicator.apply_refusals import CannotApply
from tests.replicator.real import (
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
from tests.replicator.states_scene import delete_topics, until
from tests.replicator.status_view import read_statuses

if TYPE_CHECKING:
    from clusters.settings import ConnectionSettings

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
# 2.4.1 gives topics no ids. 2.8.2 does, and is asked by name all the same; 3.9.1 is read by id and written to by name.
PAIRS = [("2.4.1", "2.8.2"), ("2.8.2", "3.9.1")]
# `make soak` tries with both what is here with the first; more has `make soak-kafka` (tests/soak/kafka_matrix.py).
in_the_first_pair = pytest.mark.parametrize(
    "old_pair",
    [pytest.param(pair, id="-to-".join(pair), marks=pytest.mark.soak if pair != PAIRS[0] else ()) for pair in PAIRS],
    indirect=True,
)


@pytest.fixture(scope="module", params=PAIRS, ids="-to-".join)
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


@in_the_first_pair
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


@in_the_first_pair
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


@in_the_first_pair
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


def test_a_release_that_is_too_old_is_refused_before_anything_is_begun(kafka_pair, topic_name, tmp_path):
    """By apply, and by a worker that is started all the same."""
    try:
        old = clusters.start_clusters(tmp_path / "old", ["old"], kafka="2.4.1")
        settings = settings_of(kafka_pair) | settings_of(old)
        plan = plan_for(settings, topic_name, topic_name, routes=(("cloud", "old"),))
        with pytest.raises(CannotApply, match=r"flow cloud-to-old.* cluster old \(Kafka 2\.4\).* Kafka 2\.8 and newer"):
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
