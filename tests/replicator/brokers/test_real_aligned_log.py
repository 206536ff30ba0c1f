"""Real brokers: an empty log is brought to an offset and past gaps, whatever happens to the worker and its requests."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replicator.real import producer, read_all, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.alignment_requests import AlignmentWire
from watershed.clusters.wire.connection import open_connection
from watershed.lab import proxied_clusters
from watershed.replicator.copy.aligned.empty_log_filler import fill_log
from watershed.replicator.copy.aligned.gap_filler import GapFiller, GapMethod
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.recovery.log_inspection import BrokerAddress

pytestmark = pytest.mark.kafka

START = 5_000_000
FLOW = "onprem-to-cloud"

_FILL = """
import sys, uuid
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.empty_log_filler import fill_log
from watershed.replicator.copy.aligned.target_log import TargetLog
bootstrap, topic, topic_id, until = sys.argv[1:]
settings = ConnectionSettings("cloud", (bootstrap,))
to = lambda address: open_connection(settings, address)
log = TargetLog(to, "cloud", topic, uuid.UUID(topic_id), 0)
print("ready", flush=True)
fill_log(log, int(until), "onprem-to-cloud")
"""


def wire_to(settings: ConnectionSettings) -> Callable[[BrokerAddress | None], AlignmentWire]:
    return lambda address: open_connection(settings, address)


def log_of(settings: ConnectionSettings, topic: str, topic_id: uuid.UUID) -> TargetLog:
    return TargetLog(wire_to(settings), settings.alias, topic, topic_id, 0)


def range_of(settings: ConnectionSettings, topic: str) -> LogRange:
    where = TopicPartition(topic, 0)
    with Admin(settings) as admin:
        return admin.offsets([where])[where]


def test_a_start_of_five_million_killed_again_and_again(kafka_pair, topic_name: str) -> None:
    settings = settings_of(kafka_pair)["cloud"]
    with Admin(settings) as admin:
        topic = admin.create_topic(topic_name, 1)
    arguments = [sys.executable, "-c", _FILL, settings.bootstrap[0], topic_name, str(topic.topic_id)]
    ends = [0]
    for kill_at in (300_000, 1_200_000, 2_500_000, 4_000_000):
        worker = subprocess.Popen([*arguments, str(START)], stdout=subprocess.PIPE)
        try:
            assert worker.stdout is not None
            worker.stdout.readline()
            deadline = time.monotonic() + 180
            while range_of(settings, topic_name).end < kill_at and worker.poll() is None:
                assert time.monotonic() < deadline
        finally:
            worker.kill()
            worker.wait()
        ends.append(range_of(settings, topic_name).end)
    assert ends == sorted(ends)
    assert subprocess.run([*arguments, str(START)], stdout=subprocess.DEVNULL, timeout=180, check=False).returncode == 0
    assert range_of(settings, topic_name) == LogRange(START, START)
    # The source's retention has moved on meanwhile, and a second worker is there, too.
    log = log_of(settings, topic_name, topic.topic_id)
    twin = threading.Thread(
        target=lambda: fill_log(log_of(settings, topic_name, topic.topic_id), START + 700_123, FLOW)
    )
    twin.start()
    fill_log(log, START + 700_123, FLOW)
    twin.join(180)
    log.close()
    assert range_of(settings, topic_name) == LogRange(START + 700_123, START + 700_123)
    sending = producer(settings)
    offsets: list[int] = []
    sending.produce(topic_name, b"first", on_delivery=lambda _error, message: offsets.append(message.offset()))
    sending.flush()
    assert offsets == [START + 700_123]


@pytest.mark.parametrize("way", [pytest.param("markers", marks=pytest.mark.soak), "transactions"])
def test_gaps_with_a_connection_dropped_at_every_one(way: GapMethod, topic_name: str, tmp_path: Path) -> None:
    """In each of 40 gaps (10 by transactions) the connections are dropped while a request is on its way, which may land
    much later."""
    with proxied_clusters.run_proxied_clusters(tmp_path, {"cloud": 1}) as (lab, found):
        direct = settings_of(lab)["cloud"]
        behind = ConnectionSettings("cloud", (found["cloud"].bootstrap,))
        (proxy,) = found["cloud"].proxies.values()
        with Admin(direct) as admin:
            topic = admin.create_topic(topic_name, 1)
        cut = {"markers": 0, "transactions": 0}

        def dropping(address: BrokerAddress | None) -> AlignmentWire:
            connection = open_connection(behind, address)
            for name, kind in (("write_markers", "markers"), ("end_transaction", "transactions")):
                setattr(connection, name, spoiled(getattr(connection, name), kind))
            return connection

        def spoiled(request: Callable[..., object], kind: str) -> Callable[..., object]:
            def made(*args: object, **kwargs: object) -> object:
                if kind in drops:
                    drops.discard(kind)
                    cut[kind] += 1
                    timer = threading.Timer(0.001 * (cut[kind] % 7), proxy.drop_clients)
                    timer.start()
                return request(*args, **kwargs)

            return made

        drops: set[str] = set()
        bump = read_transaction_version(direct) >= 2
        log = TargetLog(dropping, "cloud", topic_name, topic.topic_id, 0)
        working = GapFiller(log, FLOW, way, bump)
        sending = producer(direct)
        expected: list[int] = []
        end = 0
        rounds = 40 if way == "markers" else 10
        for number in range(rounds):
            sending.produce(topic_name, b"%d" % number)
            sending.flush()
            expected.append(end)
            drops |= {"markers", "transactions"}
            end += 1 + (number * 97 + 2 + 12_000 * (number == 20) if way == "markers" else number % 5 + 1)
            assert working.advance(end) == end
        working.close()
        log.close()
        assert range_of(direct, topic_name) == LogRange(0, end)
        assert log_of(direct, topic_name, topic.topic_id).appended() == end
        assert cut[way] >= rounds * 3 // 4
        assert [(offset, record[1]) for offset, record in read_all(direct, topic_name, 1)[0]] == [
            (offset, b"%d" % number) for number, offset in enumerate(expected)
        ]
