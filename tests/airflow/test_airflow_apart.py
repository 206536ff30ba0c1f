"""Who holds Kafka's client in Airflow: processes apart, for the page and triggers, beside a broker that aborts it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import page_world
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ensure_control_topics
from watershed.clusters.crash_isolated_client import ClientProcessEnded, ClientProcesses
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.clusters import Lab
from watershed.lab.hostile_broker import HostileBroker, build_friendly_answer
from watershed.plugins import shared_client_processes
from watershed.plugins.operators import replication, straggler_watch
from watershed.plugins.operators.replication import (
    ExpectedPartitions,
    FlowsRunning,
    ask_expected_partitions,
    ask_newest_reports,
)
from watershed.plugins.page.cluster_snapshots import CLUSTER_ANSWER_S, CLUSTER_RETRY_S, ClusterReaders, ClusterSnapshot
from watershed.plugins.state_folder import freeze_plan
from watershed.plugins.steps import waiting_steps
from watershed.plugins.steps.step_driver import StepOrder
from watershed.plugins.steps.waiting_steps import finish_waiting_steps
from watershed.topology.plan import Plan, PlanCluster

pytestmark = [pytest.mark.airflow, pytest.mark.kafka]


def until(what: Callable[[], Any], timeout: float = 180) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return found


@pytest.fixture
def reef() -> Iterator[HostileBroker]:
    broker = HostileBroker(build_friendly_answer(list), two_faced=True)
    yield broker
    broker.close()


@pytest.fixture
def hub(kafka_pair: Lab) -> str:
    address = kafka_pair.cluster("onprem").bootstrap
    with Admin(ConnectionSettings("hub", (address,))) as admin:
        ensure_control_topics(admin)
    return address


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientProcesses]:
    found = ClientProcesses()
    for module in (shared_client_processes, waiting_steps):
        monkeypatch.setattr(module, "shared_client_processes", lambda: found)
    yield found
    found.stop(60)


def frozen(folder: Path, text: str) -> Plan:
    plan = page_world.plan_in(folder, text)
    freeze_plan(folder / f"{plan.topology}.yaml")
    return plan


def test_the_other_clusters_of_the_page_stay_fresh(hub: str, reef: HostileBroker) -> None:
    readers = ClusterReaders()
    good, bad = PlanCluster("hub", (hub,)), PlanCluster("reef", (reef.address,))

    def seen(wanted: Callable[[ClusterSnapshot, ClusterSnapshot], bool]) -> ClusterSnapshot:
        until(lambda: wanted(readers.look(good), readers.look(bad)))
        return readers.look(good)

    try:
        seen(lambda hub, reef: hub.complete and "asks cluster reef, and nothing else" in (reef.problem or ""))
        asked = reef.connections
        before = seen(lambda hub, reef: hub.problem is None).answered_at or 0.0
        # The pause before the next process grows with each death: it is asked again, not within a certain time.
        until(lambda: reef_died(readers.look(good), readers.look(bad)) and reef.connections > asked)
        seen(lambda hub, _reef: (hub.answered_at or 0.0) > before + CLUSTER_RETRY_S)
        assert readers.look(good).problem is None
    finally:
        readers.stop()


def reef_died(hub: ClusterSnapshot, reef: ClusterSnapshot) -> bool:
    """Twice at least: on a busy machine nobody looks between the second and the third time."""
    return hub.problem is None and re.search(r"\d+ times in a row", reef.problem or "") is not None


def test_a_browser_waits_for_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`look` answers although the process is not even started."""
    held = threading.Event()
    monkeypatch.setattr("watershed.clusters.crash_isolated_client.ClientProcesses.enter", lambda *_: held.wait(60))
    readers = ClusterReaders()
    try:
        assert readers.look(PlanCluster("hub", ("127.0.0.1:9",))).answered_at is None
        assert not held.is_set()
    finally:
        held.set()
        readers.stop()
    assert CLUSTER_ANSWER_S > 0


def test_triggers_of_other_topologies_go_on(
    hub: str, reef: HostileBroker, asking: ClientProcesses, tmp_path: Path, state: Path
) -> None:
    good = frozen(tmp_path, page_world.one(hub))
    bad = frozen(tmp_path, page_world.strait(hub, reef.address))
    assert set(ask_expected_partitions(good).places) == {"onprem-to-cloud"}
    with pytest.raises(ClientProcessEnded, match=r"clusters of topology strait.*signal 6, SIGABRT"):
        ask_expected_partitions(bad)
    assert isinstance(ask_newest_reports(good), dict)  # at once: it was not asked when the process ended
    until(lambda: not asking.why("strait", "the clusters of topology strait"))
    with pytest.raises(ClientProcessEnded, match="nothing else"):
        ask_expected_partitions(bad)
    assert isinstance(ask_newest_reports(good), dict)


def test_the_wait_for_flows_asks_again_when_its_process_dies(
    asking: ClientProcesses, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = frozen(tmp_path, page_world.one(page_world.ADDRESS))
    monkeypatch.setattr(
        replication, "ask_expected_partitions", lambda *_: ExpectedPartitions({"onprem-to-cloud": {("orders", 0)}})
    )
    reports = [PartitionStatus("onprem-to-cloud", "orders", "dc.orders", 0, "running", at_ms=at) for at in (1, 2)]
    looks: list[Any] = [ClientProcessEnded("signal 6"), *reports]

    def looked(_plan: Plan, _ask: Any) -> dict[str, PartitionStatus]:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return {found.key: found}

    monkeypatch.setattr(replication, "ask_newest_reports", looked)

    async def fired() -> Any:
        return await anext(FlowsRunning(plan.hash, [], poll_seconds=0.01).run())

    event = asyncio.run(fired()).payload
    assert (event["problem"], looks) == ("", [])


def test_a_step_whose_process_dies_goes_back_to_a_worker(
    hub: str, reef: HostileBroker, asking: ClientProcesses, tmp_path: Path, state: Path
) -> None:
    text = page_world.one(hub)
    address = next(line for line in text.splitlines() if line.startswith("  cloud:"))
    plan = frozen(tmp_path, text.replace(address, address.split("[")[0] + f'["{reef.address}"]}}'))
    order = StepOrder(plan.hash, "orders", ("lag_gate",), "migrate__shop", "r")
    ended = finish_waiting_steps(order, None, threading.Event())
    assert ended.startswith("needs a worker: the process that asks the clusters of topology shop"), ended
    assert "signal 6, SIGABRT" in ended


def test_a_watch_whose_process_dies_looks_again(
    hub: str, reef: HostileBroker, asking: ClientProcesses, tmp_path: Path, state: Path
) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    text = page_world.one(hub)
    address = next(line for line in text.splitlines() if line.startswith("  cloud:"))
    plan = frozen(tmp_path, text.replace(address, address.split("[")[0] + f'["{reef.address}"]}}'))
    with pytest.raises(AirflowException, match="signal 6, SIGABRT") as told:
        straggler_watch.SourceWatchProxy(plan).look()
    assert not isinstance(told.value, AirflowFailException)


def test_a_watch_looks_in_the_process(hub: str, asking: ClientProcesses, tmp_path: Path, state: Path) -> None:
    plan = frozen(tmp_path, page_world.one(hub).replace("name: shop", f"name: shop{os.getpid()}"))
    assert straggler_watch.SourceWatchProxy(plan).look() == ("every wave has soaked", "", True)


def test_looks_at_flows_load_nothing_of_airflow() -> None:
    asked = (
        "import sys, watershed.plugins.operators.flow_status, watershed.clusters.control_follower_proxy; "
        "print('airflow' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.strip() == "False"


def test_dags_are_made_without_a_kafka_client(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the DAG processor nor the scheduler can be aborted by a broker."""
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(tmp_path))
    page_world.plan_in(tmp_path, page_world.one(page_world.ADDRESS))
    asked = (
        "import importlib, pathlib, sys\n"
        "found = [importlib.import_module(f'watershed.dags.{p.stem}') for p in pathlib.Path('dags').glob('[!_]*.py')]\n"
        "assert any('migrate__shop' in dir(each) for each in found), [dir(each) for each in found]\n"
        "print('confluent_kafka' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, cwd=root, timeout=240)
    assert told.stdout.splitlines()[-1:] == ["False"], told.stderr
