"""Workers copy to and from a cluster whose tokens are renewed all the time: no partition halts, every record is there
once. Broker sessions of two seconds make every connection log in again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.replicator.real import applied, assert_exact_copy, plan_for, producer, put, settings_of, wait_copied, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.lab.certificates import write_secret_file
from watershed.lab.secured_cluster import SecuredCluster, run_secured_cluster
from watershed.topology.plan import Plan, PlanCluster, PlanOAuth, PlanSecurity, seal_plan
from watershed.topology.secret_ref import SecretRef

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
PARTITIONS = 4


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with run_secured_cluster(tmp_path_factory.mktemp("rotation")) as found:
        yield found


@contextmanager
def renewed_token(secured: SecuredCluster, path: Path, every_s: float, life_s: float) -> Iterator[list[float]]:
    """The file has a new token every so often; when they were written."""
    stop, written = threading.Event(), [0.0]

    def write() -> None:
        write_secret_file(path, secured.identity.token("worker", exp=time.time() + life_s))
        written.append(time.monotonic())

    def renew() -> None:
        while not stop.wait(every_s):
            write()

    write()
    thread = threading.Thread(target=renew, name="sidecar")
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()


def secured_plan(plan: Plan, alias: str, address: str, token: Path) -> tuple[Plan, ConnectionSettings]:
    """The plan with this cluster behind tokens of the file, and its settings."""
    security = PlanSecurity(
        "SASL_PLAINTEXT", "OAUTHBEARER", SecretRef("file", str(token)), oauth=PlanOAuth(provider="file")
    )
    cluster = PlanCluster(alias, (address,), security=security)
    clusters = tuple(cluster if each.alias == alias else each for each in plan.clusters)
    return seal_plan(replace(plan, clusters=clusters)), resolve_connection_settings(cluster)


@pytest.mark.parametrize("behind_tokens", ["cloud", "onprem"], ids=["target", "source"])
@pytest.mark.parametrize(
    ("traffic_s", "every_s", "life_s"),
    [(8.0, 1.0, 5.0), pytest.param(600.0, 20.0, 30.0, marks=pytest.mark.timeout(1800))],
)
def test_no_partition_halts_and_nothing_is_lost_or_doubled(
    kafka_pair,
    secured: SecuredCluster,
    topic_name: str,
    tmp_path: Path,
    behind_tokens: str,
    traffic_s: float,
    every_s: float,
    life_s: float,
) -> None:
    settings, token = settings_of(kafka_pair), tmp_path / "token"
    with renewed_token(secured, token, every_s, life_s) as written:
        made = plan_for(settings, topic_name, topic_name)
        plan, settings[behind_tokens] = secured_plan(made, behind_tokens, secured.address("SHORT"), token)
        with Admin(settings["onprem"]) as admin:
            admin.create_topic(topic_name, PARTITIONS, 1)
        applied(settings, plan)
        sending, sent = producer(settings["onprem"]), 0
        states: set[tuple[str, str | None]] = set()
        with workers(plan, "cloud", tmp_path) as start:
            worker, began, copying_since = start(), time.monotonic(), 0.0
            while not copying_since or time.monotonic() < copying_since + traffic_s:
                put(sending, topic_name, 200, start=sent)
                sent += 200
                sending.poll(0.2)
                reports = [each for each in read_statuses(settings["cloud"]) if each.topic == topic_name]
                states |= {(each.state, each.error) for each in reports}
                if len(reports) == PARTITIONS and not copying_since:
                    copying_since = time.monotonic()
                assert copying_since or time.monotonic() < began + 180, "no reports"
            assert sending.flush(60) == 0
            wait_copied(settings, plan, topic_name, PARTITIONS)
            assert worker.runs()
        assert len(written) > traffic_s / every_s / 2
        assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == sent
    assert {error for _, error in states} == {None}, states
