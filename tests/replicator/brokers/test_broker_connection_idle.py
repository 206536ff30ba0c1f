"""Connections that end while nothing is on its way: noticed before something is sent on them, nothing is in doubt."""

from __future__ import annotations

import logging
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.clusters.test_wire_exchange import answer_versions
from tests.replicator.brokers.test_real_links import PARTITIONS, filled, linked, same, wait_until
from tests.replicator.real import producer, settings_of
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.transport import Transport
from watershed.lab import clusters
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.broker_threads import TargetBrokerThreads
from watershed.replicator.transport.rate_limit import RateLimit

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

DAY = 86_400_000


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        yield listening


def until(true: Callable[[], bool]) -> None:
    wait_until(true, 30)


def test_a_connection_tells_that_it_ended_and_stays_usable_until_then(server: socket.socket) -> None:
    transport = Transport("cloud", *server.getsockname(), timeout_s=30)
    peer, _ = server.accept()
    assert not transport.ended()
    peer.sendall(b"\0\0\0\4abcd")
    assert bytes(transport.receive()) == b"abcd"
    assert not transport.ended()
    peer.close()
    until(transport.ended)
    transport.close()
    assert transport.ended()


def greeted(server: socket.socket) -> socket.socket:
    """The next connection, whose first question (ApiVersions) has been answered."""
    peer, _ = server.accept()
    peer.settimeout(30)
    with peer.makefile("rb") as stream:
        frame = stream.read(struct.unpack(">i", stream.read(4))[0])
    _, version, number = struct.unpack_from(">hhi", frame)
    body = struct.pack(">i", number) + answer_versions(version)
    peer.sendall(struct.pack(">i", len(body)) + body)
    return peer


def active_copy_to(address: BrokerAddress, partition: int, remembered_by: int) -> ActiveCopy:
    copy = PartitionCopy(
        PartitionKey("onprem-to-cloud", "orders", "orders", partition),
        uuid.uuid4(),
        uuid.uuid4(),
        SourceCursor(0),
        TargetProgress(0),
        producer=SequencedProducer(ProducerIdentity(7, 0, 0), 5, 5, expiration_ms=DAY, remembered_by=remembered_by),
    )
    return ActiveCopy(copy, None, RateLimit(None), lambda _batch: False, address, address)


def test_only_a_broker_that_takes_no_connection_any_more_ends_what_is_idle(server: socket.socket) -> None:
    """Idle partitions, young or not, live through a closed connection; when the broker is gone they have to move."""
    address = BrokerAddress(*server.getsockname())
    link = TargetBrokerThreads(ConnectionSettings("cloud", ()), address)
    active_copies = [active_copy_to(address, 0, int(time.time() * 1000)), active_copy_to(address, 1, 0)]
    for active in active_copies:
        link.add(active)
    link.start()
    try:
        for _ in range(3):
            greeted(server).close()
        peer = greeted(server)
        assert [active.copy.trouble for active in active_copies] == [None, None]
        server.close()
        peer.close()
        until(lambda: all(isinstance(active.copy.trouble, Reinspect) for active in active_copies))
    finally:
        link.end()


@pytest.mark.kafka
def test_a_broker_that_closes_idle_connections_costs_nothing(
    kafka_pair: Lab, topic_name: str, tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="watershed.links")
    try:
        impatient = clusters.start_clusters(tmp_path, ["cloud"], settings={"connections.max.idle.ms": "2000"})
        settings = {"onprem": settings_of(kafka_pair)["onprem"], "cloud": settings_of(impatient)["cloud"]}
        filled(settings["onprem"], topic_name, 1)
        with linked(settings, topic_name, RateLimit(None)) as scene:
            wait_until(scene.done)
            for again in range(1, 3):
                wait_until(lambda again=again: closed(caplog) >= again)
                into = producer(settings["onprem"], **{"linger.ms": 0})
                for partition in range(PARTITIONS):
                    into.produce(topic_name, b"after %d closings" % again, partition=partition)
                assert into.flush(60) == 0
                wait_until(scene.done)
        assert "link lost" not in [record.message for record in caplog.records]
        assert same(settings, topic_name)
    finally:
        clusters.end_clusters(tmp_path)


def closed(caplog: pytest.LogCaptureFixture) -> int:
    return [record.message for record in caplog.records].count("link closed by the broker")
