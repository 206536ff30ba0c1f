"""Applications that DAGs stop and start, against the server of test_hook_airflow.py that speaks Airflow's REST API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.test_hook_airflow import Airflow
from tests.cutover.test_hook_airflow import airflow as airflow  # the fixture
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.application_adapter import ApplicationControlFailed, ApplicationOrder
from watershed.topology.application_controls import AirflowControl, PlanApplication


def applications(airflow: Airflow, target: str = "warm_caches", **environ: str) -> DeclaredApplications:
    known = {
        "WATERSHED_AIRFLOW_URL": f"http://127.0.0.1:{airflow.port}",
        "WATERSHED_AIRFLOW_CREDENTIALS": "env:ACCOUNT",
        "ACCOUNT": "ops:pass:word",
    }
    declared = {"stats": PlanApplication(airflow=AirflowControl(target, target))}
    return DeclaredApplications(declared, prefix=lambda: "shop/r1/all/", environ=known | environ)


STOP = ApplicationOrder("stop", "stats", "consumer", "source", "onprem", ("b1:9092",), "stop/source/stats")
START = replace(STOP, verb="start", side="target", alias="cloud", key="start/target/stats")


def test_a_run_is_triggered_once_and_followed(airflow: Airflow) -> None:
    airflow.states = ["queued", *["running"] * 3, "success"]  # a look whether it is there, and one how far it is
    told = applications(airflow)
    assert told.look("stats").state == "unknown"
    assert told.tell(STOP).state == "stopping"
    assert told.follow(STOP).state == "stopping"
    assert told.follow(STOP).state == "stopped"
    assert told.tell(STOP).state == "stopped"  # found, not run again
    [(run, conf)] = airflow.runs.items()
    assert run.startswith("watershed.stop.stats.onprem.")
    assert conf["watershed"] == {
        "verb": "stop", "application": "stats", "role": "consumer", "cluster": "onprem", "bootstrap": "b1:9092",
        "key": "shop/r1/all/stop/source/stats",
    }  # fmt: skip
    assert (told.tell(START).state, told.follow(START).cluster) == ("running", "cloud")
    assert len(airflow.runs) == 2


def test_another_run_of_the_migration_triggers_anew(airflow: Airflow) -> None:
    applications(airflow).tell(STOP)
    replace(applications(airflow), prefix=lambda: "shop/r2/all/").tell(STOP)
    assert len(airflow.runs) == 2


def test_a_task_alone_can_be_waited_for(airflow: Airflow) -> None:
    airflow.states, airflow.task_states = ["running"], [None, "success"]
    told = applications(airflow, "warm_caches/warm")
    assert told.tell(STOP).state == "stopping"
    assert told.follow(STOP).state == "stopped"


@pytest.mark.parametrize(
    ("change", "environ", "words", "transient"),
    [
        ({"states": ["failed"]}, {}, "failed. Clear it in Airflow", False),
        ({"fail_next": 1}, {}, "answered 500", True),
        ({}, {"ACCOUNT": "ops:wrong"}, "no token", False),
        ({}, {"WATERSHED_AIRFLOW_URL": ""}, "no Airflow is known here", False),
    ],
)
def test_what_airflow_says_no_with(
    airflow: Airflow, change: dict[str, Any], environ: dict[str, str], words: str, transient: bool
) -> None:
    for name, value in change.items():
        setattr(airflow, name, value)
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        applications(airflow, **environ).tell(STOP)
    assert failed.value.transient is transient


def test_preflight_finds_what_could_not_run(airflow: Airflow) -> None:
    airflow.paused = True
    with pytest.raises(ApplicationControlFailed, match="application stats: DAG warm_caches is paused"):
        applications(airflow).look("stats")
    airflow.paused = False
    with pytest.raises(ApplicationControlFailed, match="answered 404"):
        applications(airflow, "absent").look("stats")
    with pytest.raises(ApplicationControlFailed, match="neither `dag_id` nor `dag_id/task_id`"):
        applications(airflow, "warm_caches/../x").look("stats")


def test_a_start_waits_for_the_run_that_stops_it(airflow: Airflow) -> None:
    """A stop that was late was overtaken by the start that takes it back, and stood still behind it."""
    told = applications(airflow)
    back = replace(START, side="source", alias="onprem", key="start/source/stats", opposites=(
        ("onprem", "stop/source/stats"), ("cloud", "stop/target/stats"),
    ))  # fmt: skip
    airflow.states = ["running"]
    assert told.tell(STOP).state == "stopping"
    seen = told.tell(back)
    assert seen.state == "starting"
    assert "waits for the end of warm_caches, run watershed.stop.stats.onprem." in seen.text
    assert told.follow(back).state == "starting"
    assert len(airflow.runs) == 1
    airflow.states = ["success"]
    assert told.follow(back) == replace(seen, state="running", cluster="onprem", text=told.follow(back).text)
    assert [run.split(".")[1] for run in airflow.runs] == ["stop", "start"]


def test_a_stop_waits_for_the_run_that_starts_it(airflow: Airflow) -> None:
    told = applications(airflow)
    airflow.states = ["running"]
    told.tell(START)
    stop = replace(STOP, side="target", alias="cloud", opposites=(("cloud", START.key),))
    assert told.tell(stop).state == "stopping"
    assert len(airflow.runs) == 1
    airflow.states = ["failed"]  # ended, too
    with pytest.raises(ApplicationControlFailed, match="failed"):
        told.follow(stop)
    assert len(airflow.runs) == 2
