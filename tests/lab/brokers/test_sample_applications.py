"""Orders and billing on real brokers: what they acknowledge and process can be accounted for exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from watershed.lab import sample_applications
from watershed.lab.account import RunAccount, build_account, find_applications
from watershed.lab.application_records import read_application_records
from watershed.lab.errors import ApplicationFailed, LabError
from watershed.lab.preload import create_lab_topics, preload_topic, read_preload

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab, LabCluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    try:
        yield tmp_path
    finally:
        sample_applications.stop_applications(tmp_path)


def at(cluster: LabCluster) -> list[str]:
    return ["--cluster", cluster.alias, "--bootstrap", cluster.bootstrap]


def settle(home: Path, billing: sample_applications.SampleApplication) -> RunAccount:
    """Waits until billing has read what was acknowledged, stops it, and accounts."""
    deadline = time.monotonic() + 180
    while build_account(find_applications(home)).lost and time.monotonic() < deadline:
        time.sleep(0.3)
    sample_applications.stop_client(billing)
    return build_account(find_applications(home))


def test_stop_and_start_at_the_same_cluster_loses_and_repeats_nothing(
    kafka_pair: Lab, topic_name: str, home: Path
) -> None:
    here = kafka_pair.clusters["onprem"]
    topics = [f"{topic_name}.a", f"{topic_name}.b"]
    create_lab_topics(here.bootstrap, topics, 4)
    listed = ["--topics", ",".join(topics)]
    orders = sample_applications.start_application(
        home, "orders", ["watershed.lab.orders_producer", *listed, "--rate", "400", "--keys", "20", *at(here)]
    )
    billing = sample_applications.start_application(
        home, "billing", ["watershed.lab.billing_consumer", "--group", topic_name, *listed, *at(here)]
    )
    sample_applications.wait_for_count(orders, "acked", 300, seconds=180)
    sample_applications.wait_for_count(billing, "processed", 100, seconds=180)
    assert sample_applications.stop_client(orders)["state"] == "stopped"
    assert sample_applications.stop_client(billing)["state"] == "stopped"
    assert sample_applications.stop_client(billing)["state"] == "stopped"  # may be repeated
    sample_applications.start_client(orders, here.alias, here.bootstrap)
    sample_applications.start_client(billing, here.alias, here.bootstrap)
    sample_applications.wait_for_count(
        orders, "acked", sample_applications.ask_application(orders)["acked"] + 300, seconds=180
    )
    acked = sample_applications.stop_client(orders)["acked"]

    result = settle(home, billing)

    assert result.acked == result.processed_distinct == acked
    assert (result.lost, result.repeated, result.out_of_order_per_key) == (0, 0, 0)
    assert result.groups[0].unacknowledged == 0
    numbers: dict[tuple[str, int], list[int]] = {}
    for record in read_application_records(home / "orders"):
        numbers.setdefault((record.topic, record.key), []).append(record.number)
    assert len(numbers) == 40
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


def test_transactions_count_when_committed_and_aborted_ones_never(kafka_pair: Lab, topic_name: str, home: Path) -> None:
    here = kafka_pair.clusters["onprem"]
    create_lab_topics(here.bootstrap, [topic_name], 2)
    transactional = ["--transactional-id", topic_name, "--transaction-records", "10", "--abort-every", "3"]
    listed = ["--topics", topic_name]
    orders = sample_applications.start_application(
        home, "orders", ["watershed.lab.orders_producer", *listed, "--rate", "300", *transactional, *at(here)]
    )
    billing = sample_applications.start_application(
        home, "billing", ["watershed.lab.billing_consumer", "--group", topic_name, *listed, *at(here)]
    )
    sample_applications.wait_for_count(orders, "acked", 200, seconds=180)
    stranger = Producer({"bootstrap.servers": here.bootstrap})
    stranger.produce(topic_name, b"not of the sample applications")
    assert stranger.flush(60) == 0
    sample_applications.stop_client(orders)

    result = settle(home, billing)

    assert (result.lost, result.repeated, result.out_of_order_per_key) == (0, 0, 0)
    assert result.groups[0].unacknowledged == 0
    sample_applications.start_application(home, "dirty", dirty_reader(topic_name, here))
    deadline = time.monotonic() + 180
    while len(build_account([home / "orders", home / "dirty"]).groups[0].repeated_examples) == 0:
        assert time.monotonic() < deadline, "no aborted record in the log: the test shows nothing"
        time.sleep(0.2)


def dirty_reader(topic: str, here: LabCluster) -> list[str]:
    options = ["--group", f"{topic}-dirty", "--topics", topic, "--isolation", "read_uncommitted"]
    return ["watershed.lab.billing_consumer", *options, *at(here)]


def test_a_move_is_timed_and_missing_offsets_are_loud(kafka_pair: Lab, topic_name: str, home: Path) -> None:
    here, there = kafka_pair.clusters["onprem"], kafka_pair.clusters["cloud"]
    for cluster in (here, there):
        create_lab_topics(cluster.bootstrap, [topic_name], 2)
    listed = ["--topics", topic_name]
    orders = sample_applications.start_application(
        home, "orders", ["watershed.lab.orders_producer", *listed, "--rate", "200", *at(here)]
    )
    billing = sample_applications.start_application(
        home, "billing", ["watershed.lab.billing_consumer", "--group", topic_name, *listed, *at(here)]
    )
    sample_applications.wait_for_count(billing, "processed", 20, seconds=180)
    with pytest.raises(ApplicationFailed, match="stop it first"):
        sample_applications.start_client(orders, there.alias, there.bootstrap)
    began = time.monotonic()
    sample_applications.stop_client(orders)
    seen = sample_applications.stop_client(billing)["processed"]
    time.sleep(1)
    sample_applications.start_client(orders, there.alias, there.bootstrap)
    sample_applications.wait_for_count(
        orders, "acked", sample_applications.ask_application(orders)["acked"] + 50, seconds=180
    )
    took = time.monotonic() - began
    sample_applications.stop_client(orders)
    sample_applications.start_client(billing, there.alias, there.bootstrap)
    with pytest.raises(ApplicationFailed, match="no usable offset"):
        sample_applications.wait_for_count(billing, "processed", seen + 1, seconds=180)

    result = build_account(find_applications(home))

    assert [(move.source, move.target) for move in result.moves] == [("onprem", "cloud")]
    assert 1.0 <= result.max_seconds_without_writes < took + 5.0  # from its last record on, not from the stop
    assert result.lost >= 50


def test_a_preload_is_accounted_for_in_short(kafka_pair: Lab, topic_name: str, home: Path) -> None:
    here = kafka_pair.clusters["onprem"]
    plain, careful = f"{topic_name}.lz4", f"{topic_name}.tx"
    create_lab_topics(here.bootstrap, [plain, careful], 4)
    place = (here.alias, here.bootstrap)
    preload_topic(home / "history", "history", *place, plain, 30_000, keys=70, compression="lz4")
    preload_topic(home / "history", "history", *place, plain, 1_001, keys=70, compression="lz4")
    preload_topic(home / "history", "history", *place, careful, 45_000, keys=70, transactional_id=topic_name)
    listed = ["--topics", f"{plain},{careful}"]
    billing = sample_applications.start_application(
        home, "billing", ["watershed.lab.billing_consumer", "--group", topic_name, *listed, *at(here)]
    )
    sample_applications.wait_for_count(billing, "processed", 76_001, seconds=180)

    result = settle(home, billing)

    assert result.acked == result.preloaded == result.processed_distinct == 76_001
    assert (result.lost, result.repeated, result.out_of_order_per_key) == (0, 0, 0)
    counts: dict[int, int] = {}
    for record in read_application_records(home / "billing"):
        if record.topic == plain:
            counts[record.partition] = counts.get(record.partition, 0) + 1
    loaded = read_preload(home / "history", plain)
    assert loaded is not None
    assert loaded.counts == counts


def test_numbers_go_on_after_a_crash(kafka_pair: Lab, topic_name: str, home: Path) -> None:
    here = kafka_pair.clusters["onprem"]
    create_lab_topics(here.bootstrap, [topic_name], 2)
    arguments = ["watershed.lab.orders_producer", "--topics", topic_name, "--rate", "300", "--keys", "5"]
    orders = sample_applications.start_application(home, "orders", [*arguments, *at(here)])
    sample_applications.wait_for_count(orders, "acked", 100, seconds=180)
    sample_applications.kill_application(home, "orders")
    assert sample_applications.list_applications(home)["orders"].pid is None
    again = sample_applications.start_application(home, "orders", arguments)  # it remembers where it was
    assert again.port == orders.port
    sample_applications.wait_for_count(
        again, "acked", sample_applications.ask_application(again)["acked"] + 50, seconds=180
    )
    sample_applications.stop_client(again)
    billing = sample_applications.start_application(
        home, "billing", ["watershed.lab.billing_consumer", "--group", topic_name, "--topics", topic_name, *at(here)]
    )

    result = settle(home, billing)

    assert (result.lost, result.repeated, result.out_of_order_per_key) == (0, 0, 0)


def test_a_missing_topic_is_named(kafka_pair: Lab, topic_name: str, home: Path) -> None:
    here = kafka_pair.clusters["onprem"]
    orders = sample_applications.start_application(
        home, "orders", ["watershed.lab.orders_producer", "--topics", topic_name, *at(here)]
    )
    with pytest.raises(ApplicationFailed, match=f"onprem has no topic {topic_name}"):
        sample_applications.wait_for_count(orders, "acked", 1, seconds=180)
    with pytest.raises(LabError, match=f"onprem has no topic {topic_name}"):
        preload_topic(home / "history", "history", here.alias, here.bootstrap, topic_name, 10)
