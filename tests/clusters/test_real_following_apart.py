"""Following a real cluster in a process apart, beside a broker that ends that process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from clusters.admin import Admin
from clusters.apart import Apart, CallFailed, ProcessEnded
from clusters.control import STATUS, ControlWriter, ensure_control_topics
from clusters.following import Seen
from clusters.following_apart import FollowingApart
from clusters.settings import ConnectionSettings
from clusters.status import PartitionStatus, forget_status, write_status
from lab.clusters import Lab
from lab.hostile_broker import HostileBroker, friendly
from topology.plan import PlanCluster, SecretRef, Security

pytestmark = pytest.mark.kafka
ABORTED = """
from clusters.following import Following
from clusters.settings import ConnectionSettings
with Following(ConnectionSettings("bad", ("{address}",))) as following:
    following.ask(30.0)
"""


@pytest.fixture
def apart() -> Iterator[Apart]:
    found = Apart()
    yield found
    found.stop(60)


@pytest.fixture
def bad() -> Iterator[HostileBroker]:
    """Answers our own question as a broker, and librdkafka's so that it aborts."""
    broker = HostileBroker(friendly(list), two_faced=True)
    yield broker
    broker.close()


def until(following: FollowingApart, wanted: Callable[[Seen], bool], timeout: float = 180) -> Seen:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        following.ask(15.0)
        for record in following.read(0.2):
            if wanted(record):
                return record
    raise AssertionError("it did not come")


def test_what_is_there_and_what_comes(kafka_pair: Lab, topic_name: str, apart: Apart) -> None:
    cluster = PlanCluster("onprem", (kafka_pair.cluster("onprem").bootstrap,))
    settings = ConnectionSettings("onprem", cluster.bootstrap)
    with Admin(settings) as admin:
        ensure_control_topics(admin)
    told = PartitionStatus(topic_name, "t", "t", 0, "paused", note="ü\0")
    with ControlWriter(settings) as writer, FollowingApart(apart, cluster) as following:
        assert not following.complete
        write_status(writer, told)
        writer.flush()
        first = until(following, lambda record: record.key == told.key)
        assert (first.topic, b"paused" in (first.payload or b"")) == (STATUS, True)
        while not following.complete:
            following.read(0.2)
        forget_status(writer, told)
        writer.flush()
        assert until(following, lambda record: record.key == told.key).payload is None


def test_what_goes_wrong_there_is_said_here(apart: Apart) -> None:
    with (
        FollowingApart(apart, PlanCluster("gone", ("127.0.0.1:9",))) as following,
        pytest.raises(CallFailed, match="cluster gone does not answer"),
    ):
        following.ask(0.5)
    refused = Security("SASL_PLAINTEXT", "PLAIN", SecretRef("env", "AIRFLOW__CORE__FERNET_KEY"))
    with pytest.raises(CallFailed, match="AIRFLOW__CORE__FERNET_KEY"):
        FollowingApart(apart, PlanCluster("greedy", ("127.0.0.1:9",), security=refused))


def test_a_connection_of_airflow_is_resolved_there(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WATERSHED_HUB", "kafka://ann:canary@")
    for name, problem in (("watershed_hub", "cluster hub does not answer"), ("watershed_other", "is not set")):
        account = Security("SASL_PLAINTEXT", "PLAIN", SecretRef("airflow_connection", name))
        cluster = PlanCluster("hub", ("127.0.0.1:9",), security=account)
        with pytest.raises(CallFailed, match=problem) as told:
            ask_once(apart, cluster)
        assert "canary" not in str(told.value)


def test_without_a_process_apart_the_process_that_asks_is_aborted(bad: HostileBroker) -> None:
    command = [sys.executable, "-c", ABORTED.format(address=bad.address)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -6, ended.stderr


def test_a_cluster_that_aborts_its_client_stops_no_other(kafka_pair: Lab, apart: Apart, bad: HostileBroker) -> None:
    good = PlanCluster("onprem", (kafka_pair.cluster("onprem").bootstrap,))
    evil = PlanCluster("evil", (bad.address,))
    with FollowingApart(apart, good) as following:
        following.ask(30.0)
        with (
            FollowingApart(apart, evil) as other,
            pytest.raises(ProcessEnded, match=r"asked cluster evil and 1 other ended \(signal 6, SIGABRT\)"),
        ):
            other.ask(30.0)
        with pytest.raises(ProcessEnded, match="cluster onprem and 1 other"):  # once: it shared the process
            following.ask(30.0)
    while apart.why(good, "cluster onprem"):
        time.sleep(0.05)
    with FollowingApart(apart, good) as following:
        following.ask(30.0)
        for _ in range(2):
            with pytest.raises(ProcessEnded):
                ask_once(apart, evil)
            following.ask(30.0)
        alone = until_alone(apart, evil)
        assert "that asks cluster evil, and nothing else, ended" in alone
        following.ask(30.0)


def ask_once(apart: Apart, cluster: PlanCluster) -> None:
    with FollowingApart(apart, cluster) as following:
        following.ask(0.5 if cluster.alias == "hub" else 30.0)


def until_alone(apart: Apart, cluster: PlanCluster) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            ask_once(apart, cluster)
        except ProcessEnded as ended:
            if "nothing else" in str(ended):
                return str(ended)
        time.sleep(0.1)
    raise AssertionError("it did not come")
