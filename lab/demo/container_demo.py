"""The demonstration inside the network of docker-compose.yaml and docker/demo.yaml: `lab.demo.container_demo`.

It writes records, has the topology of docker/topologies carried out through Airflow's REST API, does what a person is
asked to do, and ends with the table of `make demo`. WATERSHED_RECORDS: how many are written before anything moves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click

from watershed.lab import sample_applications
from watershed.lab.airflow_client import AirflowClient, AirflowRequestFailed
from watershed.lab.demo.container_application import CONTAINER_ROOT, list_container_applications
from watershed.lab.demo.dag_run_follower import read_failure_logs
from watershed.lab.demo.demo_result import build_demo_result, render_demo_result
from watershed.lab.demo.demo_setup import (
    DEMO_PARTITIONS,
    DEMO_SOURCE,
    DEMO_TOPICS,
    DemoFolders,
    preload_demo_topics,
)
from watershed.lab.demo.demo_steps import (
    MIGRATE,
    REPLICATE,
    RUN_ON_AT_TARGET_S,
    build_answers,
    run_dag,
    settle_applications,
    start_clock,
)
from watershed.lab.errors import LabError
from watershed.lab.preload import create_lab_topics

_AIRFLOW = "http://airflow-api-server:8080"
_STAGE = DemoFolders(CONTAINER_ROOT)
_STATE = _STAGE.state / "watershed"  # WATERSHED_STATE of Airflow's containers


def main() -> int:
    """Runs the demonstration. Returns the exit code: 0 proven, 1 not, 2 it could not be carried out."""
    try:
        return _run(int(os.environ.get("WATERSHED_RECORDS") or 2_000_000))
    except (LabError, AirflowRequestFailed, OSError) as problem:
        click.echo(f"error: {problem}", err=True)
        return 2


def find_container_bootstrap(alias: str) -> str:
    """The bootstrap servers of a cluster of docker-compose.yaml, as its other containers reach it."""
    return f"{alias}:9092"


def _run(records: int) -> int:
    say, began = start_clock(), time.monotonic()
    password = json.loads((_STAGE.state / "airflow" / "passwords.json").read_text())["admin"]
    client = AirflowClient(_AIRFLOW, password=password)
    _fill_source(say, records)
    for dag in (REPLICATE, MIGRATE):
        client.wait_for_dag(dag, timeout=300)
    states: dict[str, str] = {}
    say(f"{REPLICATE} is triggered")
    states[REPLICATE] = run_dag(client, REPLICATE, {"approval": "auto"}, say)
    if states[REPLICATE] != "success":
        raise LabError("\n".join([f"{REPLICATE} failed", *read_failure_logs(client, REPLICATE, "demo")]))
    say(f"{MIGRATE} is triggered; applications go on writing and reading")
    answers = build_answers(list_container_applications, find_container_bootstrap)
    states[MIGRATE] = run_dag(client, MIGRATE, {"approval": "manual"}, say, answers)
    if states[MIGRATE] == "success":
        time.sleep(RUN_ON_AT_TARGET_S)
    settle_applications(list_container_applications(), say)
    result = build_demo_result(_STAGE, states, _STATE / "runs" / MIGRATE / "demo", time.monotonic() - began)
    click.echo("\n" + render_demo_result(result) + "\n")
    if states[MIGRATE] != "success":
        click.echo("\n".join(read_failure_logs(client, MIGRATE, "demo")), err=True)
    click.echo("proven: nothing lost, nothing repeated" if result.good else "NOT proven; see above")
    return 0 if result.good else 1


def _fill_source(say: Callable[[str], None], records: int) -> None:
    """Topics, records, and applications at the source."""
    source = find_container_bootstrap(DEMO_SOURCE)
    create_lab_topics(source, [topic.name for topic in DEMO_TOPICS], DEMO_PARTITIONS)
    applications = list_container_applications()
    start = partial(sample_applications.start_client, cluster=DEMO_SOURCE, bootstrap=source)
    with ThreadPoolExecutor() as pool:
        list(pool.map(start, applications.values()))
    say(f"producers and consumers run at {DEMO_SOURCE}: {', '.join(applications)}")
    preload_demo_topics(_STAGE, source, records)
    say(f"{records:,} records preloaded into {len(DEMO_TOPICS)} topics of {DEMO_PARTITIONS} partitions")


if __name__ == "__main__":
    raise SystemExit(main())
