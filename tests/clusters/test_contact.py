"""Brokers whose answers end a process that reads them by librdkafka."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from watershed.clusters import broker_precheck
from watershed.clusters.broker_precheck import require_kafka_brokers
from watershed.clusters.errors import ProtocolError
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.hostile_broker import (
    ABORTING_API_VERSIONS,
    API_VERSIONS,
    BrokerAnswer,
    HostileBroker,
    build_friendly_answer,
)

TOPOLOGY = """apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: orders}}
clusters:
  onprem: {{bootstrap: ["{onprem}"]}}
  cloud: {{bootstrap: ["{cloud}"]}}
flows:
  - {{source: cloud, target: onprem, topics: {{include: [orders]}}}}
"""
HOSTILE = {
    "null array": ABORTING_API_VERSIONS,
    "absurd length": b"\0\0" + b"\xff\xff\xff\xff\x0f",
    "more than is there": b"\0\0" + b"\x64" + b"\0" * 14,
    "older, absurd": b"\0\x23" + b"\x7f\xff\xff\xff",
    "nothing": b"",
    "no end": b"\0\0" + b"\xff" * 30,
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[BrokerAnswer], HostileBroker]]:
    monkeypatch.setattr(broker_precheck, "_known", {})
    with ExitStack() as stack:

        def start(answer: BrokerAnswer) -> HostileBroker:
            broker = HostileBroker(answer)
            stack.callback(broker.close)
            return broker

        yield start


def settings(*brokers: HostileBroker) -> ConnectionSettings:
    return ConnectionSettings("onprem", tuple(each.address for each in brokers))


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_an_answer_that_no_broker_gives_is_refused_by_address(
    started: Callable[[BrokerAnswer], HostileBroker], body: bytes
) -> None:
    broker = started(lambda key, version: body)
    with pytest.raises(ProtocolError, match=rf"cluster onprem: {broker.address} gives an answer that no broker gives"):
        settings(broker).librdkafka()
    with pytest.raises(ProtocolError, match="no broker gives"):
        settings(broker).librdkafka()


@pytest.mark.parametrize("highest", [1, 3, 4, 8, 13])
def test_every_advertised_broker_is_asked_too(started: Callable[[BrokerAnswer], HostileBroker], highest: int) -> None:
    hostile = started(lambda key, version: ABORTING_API_VERSIONS)
    friend = started(build_friendly_answer(lambda: [hostile.port], highest))
    with pytest.raises(ProtocolError, match=hostile.address):
        require_kafka_brokers(settings(friend))


@pytest.mark.parametrize("brokers", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\1\0\0\0\0\x7f\xff" + b"x" * 20])
def test_brokers_that_cannot_be_in_the_answer_are_refused(
    started: Callable[[BrokerAnswer], HostileBroker], brokers: bytes
) -> None:
    friend = build_friendly_answer(list, 1)
    broker = started(lambda key, version: friend(key, version) if key == API_VERSIONS else brokers)
    with pytest.raises(ProtocolError, match=r"answer of .* bytes to Metadata"):
        require_kafka_brokers(settings(broker))


def test_good_brokers_are_asked_once(started: Callable[[BrokerAnswer], HostileBroker]) -> None:
    ports: list[int] = []
    one, two = (started(build_friendly_answer(lambda: ports)) for _ in range(2))
    ports += [one.port, two.port]
    for _ in range(3):
        assert settings(one).librdkafka()["bootstrap.servers"] == one.address
    assert (one.connections, two.connections) == (1, 1)


def test_who_does_not_answer_is_left_to_librdkafka(started: Callable[[BrokerAnswer], HostileBroker]) -> None:
    """Nobody there, somebody who closes, somebody who is silent, an address that is none."""
    gone = started(lambda key, version: None)
    gone.close()
    closing = started(lambda key, version: None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = (gone.address, closing.address, f"127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        require_kafka_brokers(ConnectionSettings("onprem", addresses))
        require_kafka_brokers(ConnectionSettings("onprem", ("onprem",)))
    assert time.monotonic() - began < 30


def test_a_silent_broker_does_not_hide_a_hostile_one(started: Callable[[BrokerAnswer], HostileBroker]) -> None:
    hostile = started(lambda key, version: ABORTING_API_VERSIONS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = (f"127.0.0.1:{silent.getsockname()[1]}", hostile.address)
        with pytest.raises(ProtocolError, match=hostile.address):
            require_kafka_brokers(ConnectionSettings("onprem", addresses))


@pytest.mark.parametrize("ask", [["status"], ["plan"], ["scan", "--sample", "0s"]], ids=" ".join)
def test_a_command_ends_with_a_message(
    started: Callable[[BrokerAnswer], HostileBroker], tmp_path: Path, ask: list[str]
) -> None:
    """Not with SIGABRT, as librdkafka would have it end (docs/upstream/librdkafka-apiversions.md)."""
    brokers = [started(lambda key, version: ABORTING_API_VERSIONS) for _ in range(2)]
    file = tmp_path / "orders.yaml"
    file.write_text(TOPOLOGY.format(onprem=brokers[0].address, cloud=brokers[1].address))
    command = [str(Path(sys.executable).with_name("topology")), *ask, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2, ended.stderr
    said = ended.stdout + ended.stderr
    assert any(f"{each.address} gives an answer that no broker gives" in said for each in brokers), said
    assert "Traceback" not in ended.stderr
