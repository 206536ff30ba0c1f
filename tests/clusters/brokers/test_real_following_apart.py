"""Following a real cluster in a process apart, beside a broker that ends that process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from watershed.clusters.admin import Admin
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_follower_proxy import ControlFollowerProxy
from watershed.clusters.control_topics import STATUS_TOPIC, ControlWriter, ensure_control_topics
from watershed.clusters.crash_isolated_client import CallFailed, ClientProcessEnded, ClientProcesses
from watershed.clusters.partition_status_records import PartitionStatus, delete_partition_status, write_partition_status
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.clusters import Lab
from watershed.lab.hostile_broker import HostileBroker, build_friendly_answer
from watershed.topology.plan import PlanCluster, PlanSecurity
from watershed.topology.secret_ref import SecretRef

pytestmark = pytest.mark.kafka
ABORTED = """
from watershed.clusters.control_follower import ControlFollower
from watershed.clusters.settings import ConnectionSettings
with ControlFollower(ConnectionSettings("bad", ("{address}",))) as following:
    following.ask(30.0)
"""


@pytest.fixture
def apart() -> Iterator[ClientProcesses]:
    found = ClientProcesses()
    yield found
    found.stop(60)


@pytest.fixture
def bad() -> Iterator[HostileBroker]:
    """Answers our own question as a broker, and librdkafka's so that it aborts."""
    broker = HostileBroker(build_friendly_answer(list), two_faced=True)
    yield broker
    broker.close()


def until(
    following: ControlFollowerProxy, wanted: Callable[[FollowedRecord], bool], timeout: float = 180
) -> FollowedRecord:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        following.ask(15.0)
        for record in following.read(0.2):
            if wanted(record):
                return record
    raise AssertionError("it did not come")


def test_what_is_there_and_what_comes(kafka_pair: Lab, topic_name: str, apart: ClientProcesses) -> None:
    cluster = PlanCluster("onprem", (kafka_pair.cluster("onprem").bootstrap,))
    settings = ConnectionSettings("onprem", cluster.bootstrap)
    with Admin(settings) as admin:
        ensure_control_topics(admin)
    told = PartitionStatus(topic_name, "t", "t", 0, "paused", note="ü\0")
    with ControlWriter(settings) as writer, ControlFollowerProxy(apart, cluster) as following:
        assert not following.complete
        write_partition_status(writer, told)
        writer.flush()
        first = until(following, lambda record: record.key == told.key)
        assert (first.topic, b"paused" in (first.payload or b"")) == (STATUS_TOPIC, True)
        while not following.complete:
            following.read(0.2)
        delete_partition_status(writer, told)
        writer.flush()
        assert until(following, lambda record: record.key == told.key).payload is None


def test_what_goes_wrong_there_is_said_here(apart: ClientProcesses) -> None:
    with (
        ControlFollowerProxy(apart, PlanCluster("gone", ("127.0.0.1:9",))) as following,
        pytest.raises(CallFailed, match="cluster gone does not answer"),
    ):
        following.ask(0.5)
    refused = PlanSecurity("SASL_PLAINTEXT", "PLAIN", SecretRef("env", "AIRFLOW__CORE__FERNET_KEY"))
    with pytest.raises(CallFailed, match="AIRFLOW__CORE__FERNET_KEY"):
        ControlFollowerProxy(apart, PlanCluster("greedy", ("127.0.0.1:9",), security=refused))


def test_a_connection_of_airflow_is_resolved_there(apart: ClientProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WATERSHED_HUB", "kafka://ann:canary@")
    for name, problem in (("watershed_hub", "cluster hub does not answer"), ("watershed_other", "is not set")):
        account = PlanSecurity("SASL_PLAINTEXT", "PLAIN", SecretRef("airflow_connection", name))
        cluster = PlanCluster("hub", ("127.0.0.1:9",), security=account)
        with pytest.raises(CallFailed, match=problem) as told:
            ask_once(apart, cluster)
        assert "canary" not in str(told.value)


def test_without_a_process_apart_the_process_that_asks_is_aborted(bad: HostileBroker) -> None:
    command = [sys.executable, "-c", ABORTED.format(address=bad.address)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -6, ended.stderr


def test_a_cluster_that_aborts_its_client_stops_no_other(
    kafka_pair: Lab, apart: ClientProcesses, bad: HostileBroker
) -> None:
    good = PlanCluster("onprem", (kafka_pair.cluster("onprem").bootstrap,))
    evil = PlanCluster("evil", (bad.address,))
    with ControlFollowerProxy(apart, good) as following:
        following.ask(30.0)
        with (  # sometimes before it has answered that it follows
            pytest.raises(ClientProcessEnded, match=r"asked cluster evil and 1 other ended \(signal 6, SIGABRT\)"),
            ControlFollowerProxy(apart, evil) as other,
        ):
            other.ask(30.0)
        with pytest.raises(ClientProcessEnded, match="cluster onprem and 1 other"):  # once: it shared the process
            following.ask(30.0)
    while apart.why(good, "cluster onprem"):
        time.sleep(0.05)
    with ControlFollowerProxy(apart, good) as following:
        following.ask(30.0)
        for _ in range(2):
            with pytest.raises(ClientProcessEnded):
                ask_once(apart, evil)
            following.ask(30.0)
        alone = until_alone(apart, evil)
        assert "that asks cluster evil, and nothing else, ended" in alone
        following.ask(30.0)


def ask_once(apart: ClientProcesses, cluster: PlanCluster) -> None:
    with ControlFollowerProxy(apart, cluster) as following:
        following.ask(0.5 if cluster.alias == "hub" else 30.0)


def until_alone(apart: ClientProcesses, cluster: PlanCluster) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            ask_once(apart, cluster)
        except ClientProcessEnded as ended:
            if "nothing else" in str(ended):
                return str(ended)
        time.sleep(0.1)
    raise AssertionError("it did not come")
