"""A hook as a run of a DAG in a real Airflow, by its REST API: triggered once, attached to, refused, cleared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutover.hooks.hook_caller import HookCaller
from lab import airflow
from lab.airflow_client import AirflowClient
from topology.migration_waves import PlanHook

pytestmark = pytest.mark.slow
DAG = '''
"""A dag of somebody's: airflow runs it when a migration asks."""
from pathlib import Path
from airflow.sdk import dag, task

@dag(schedule=None, dag_id="warm_caches")
def warm_caches():
    @task
    def warm(dag_run=None):
        told = dag_run.conf["watershed"]
        with Path({folder!r}, "warmed").open("a") as file:
            file.write(told["key"] + "\\n")
        if told["point"] == "fenced" and not Path({folder!r}, "mended").exists():
            raise RuntimeError("the caches are cold")

    warm()

warm_caches()
'''


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[airflow.LocalAirflow]:
    home = tmp_path_factory.mktemp("hooks")
    for name in ("dags", "topologies"):
        (home / name).mkdir()
    (home / "dags" / "warm_caches.py").write_text(DAG.format(folder=str(home)))
    own = {"AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"), "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "none")}
    try:
        yield airflow.start_airflow(
            home, topologies=home / "topologies", state=home / "state", settings=own, timeout=480
        )
    finally:
        airflow.stop_airflow(home)


def hooks(running: airflow.LocalAirflow, task: str, account: str = "ops:ops") -> HookCaller:
    environ = {
        "WATERSHED_AIRFLOW_URL": running.url,
        "WATERSHED_AIRFLOW_CREDENTIALS": "env:ACCOUNT",
        "ACCOUNT": account,
    }
    return HookCaller(
        {"warm": PlanHook(airflow_task=task, timeout_ms=240_000)}, "shop", "all", lambda: "run 1", environ=environ
    )


def test_a_hook_is_a_run_of_a_dag(running: airflow.LocalAirflow) -> None:
    client = AirflowClient(running.url)
    client.wait_for_dag("warm_caches", 480)
    assert "is paused" in hooks(running, "warm_caches").problems(["warm"])[0]
    client.unpause("warm_caches")
    assert hooks(running, "warm_caches/warm").problems(["warm"]) == ()
    assert "answered 404" in hooks(running, "warm_caches/absent").problems(["warm"])[0]
    assert "gives user ops no token" in hooks(running, "warm_caches", "ops:wrong").problems(["warm"])[0]
    assert "answered 403" in hooks(running, "warm_caches", "view:view").call("warm", "before", "k", {}).text

    first = hooks(running, "warm_caches/warm").call("warm", "before", "all/before/warm", {"source": "onprem"})
    assert first.agreed, first
    again = hooks(running, "warm_caches").call("warm", "before", "all/before/warm", {"source": "onprem"})
    assert again.agreed, again
    warmed = Path(running.directory) / "warmed"
    assert warmed.read_text().splitlines() == ["shop/run 1/all/before/warm"]

    failed = hooks(running, "warm_caches").call("warm", "fenced", "all/fenced/warm", {})
    assert (failed.agreed, failed.seen["answer"]) == (False, "no"), failed
    assert "Clear it in Airflow" in failed.text
    (warmed.parent / "mended").touch()
    client.clear("warm_caches", failed.text.split("run ")[1].split(":")[0], ["warm"])
    mended = hooks(running, "warm_caches").call("warm", "fenced", "all/fenced/warm", {})
    assert mended.agreed, mended
