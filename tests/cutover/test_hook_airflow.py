"""A hook as a DAG run, against a server that speaks the part of Airflow's REST API that is used.

tests/airflow/test_airflow_live.py asks a real Airflow.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from watershed.cutover.hooks.hook_caller import HookCaller
from watershed.topology.migration_waves import PlanHook


@dataclass
class Airflow:
    """One DAG `warm_caches` with a task `warm`. states: of the run, one a look; the last stays."""

    states: list[str] = field(default_factory=lambda: ["success"])
    task_states: list[str | None] = field(default_factory=lambda: ["success"])
    paused: bool = False
    runs: dict[str, Any] = field(default_factory=dict)
    triggered: int = 0
    logins: int = 0
    fail_next: int = 0  # so many requests are answered with 500
    port: int = 0

    def answer(self, method: str, path: str, body: Any, token: str) -> tuple[int, Any]:
        if path == "/auth/token":
            self.logins += 1
            good = body == {"username": "ops", "password": "pass:word"}
            return (201, {"access_token": f"token-{self.logins}"}) if good else (401, {})
        if self.fail_next:
            self.fail_next -= 1
            return 500, {"detail": "database is locked"}
        if token != f"Bearer token-{self.logins}" and token != "Bearer fixed":
            return 401, {"detail": "token expired"}
        base = "/api/v2/dags/warm_caches"
        if not path.startswith(base):
            return 404, {"detail": f"{path} was not found"}
        if path in (base, f"{base}/tasks/warm"):
            return 200, {"is_paused": self.paused}
        if (method, path) == ("POST", f"{base}/dagRuns"):
            self.triggered += 1
            if body["dag_run_id"] in self.runs:
                return 409, {"detail": "exists"}
            assert re.fullmatch(r"[A-Za-z0-9_.~:+-]+", body["dag_run_id"])
            self.runs[body["dag_run_id"]] = body["conf"]
            return 200, {"state": "queued"}
        run = path.removeprefix(f"{base}/dagRuns/").split("/")[0]
        if run not in self.runs:
            return 404, {"detail": f"no run {run}"}
        states = self.task_states if path.endswith("/taskInstances/warm") else self.states
        return 200, {"state": states.pop(0) if len(states) > 1 else states[0]}


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    there = Airflow()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            token = self.headers.get("authorization") or ""
            status, value = there.answer(self.command, self.path, json.loads(content or b"null"), token)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        do_POST = do_GET

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    there.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield there
    server.shutdown()
    server.server_close()
    thread.join(5)


def hooks(airflow: Airflow, task: str = "warm_caches", timeout_ms: int = 5_000, **environ: str) -> HookCaller:
    told = {
        "WATERSHED_AIRFLOW_URL": f"http://127.0.0.1:{airflow.port}/",
        "WATERSHED_AIRFLOW_CREDENTIALS": "env:ACCOUNT",
        "ACCOUNT": "ops:pass:word",
    }
    hook = PlanHook(airflow_task=task, timeout_ms=timeout_ms)
    return HookCaller({"warm": hook}, "shop", "all", lambda: "run 1", environ=told | environ)


def call(told: HookCaller, key: str = "all/before/warm") -> Any:
    return told.call("warm", "before", key, {"source": "onprem"})


def test_a_run_is_triggered_and_waited_for(airflow: Airflow) -> None:
    airflow.states = ["queued", "running", "success"]
    seen = call(hooks(airflow))
    assert seen.agreed, seen
    ((run, conf),) = airflow.runs.items()
    assert run.startswith("watershed.shop.all.before.warm.")
    assert conf["watershed"]["key"] == "shop/run 1/all/before/warm"
    assert "success" in seen.text


def test_a_second_call_attaches_to_the_run_of_the_first(airflow: Airflow) -> None:
    told = hooks(airflow)
    assert call(told).agreed
    assert call(hooks(airflow)).agreed
    assert (len(airflow.runs), airflow.triggered) == (1, 2)
    assert call(told, "all/check/warm").agreed
    assert len(airflow.runs) == 2


def test_a_run_that_fails_is_a_no_until_it_is_cleared(airflow: Airflow) -> None:
    airflow.states = ["failed"]
    seen = call(hooks(airflow))
    assert (seen.agreed, seen.seen["answer"]) == (False, "no")
    assert "Clear it in Airflow" in seen.text
    airflow.states = ["success"]
    assert call(hooks(airflow)).agreed


def test_only_the_task_is_waited_for(airflow: Airflow) -> None:
    airflow.states, airflow.task_states = ["running"], [None, "running", "success"]
    assert call(hooks(airflow, "warm_caches/warm")).agreed
    airflow.states, airflow.task_states = ["failed"], [None]
    assert call(hooks(airflow, "warm_caches/warm"), "all/switched/warm").seen["answer"] == "no"


def test_a_busy_airflow_is_asked_again_and_an_old_token_renewed(airflow: Airflow) -> None:
    airflow.states, airflow.fail_next = ["running", "success"], 2
    told = hooks(airflow)
    assert call(told).agreed
    assert airflow.logins >= 1
    assert call(hooks(airflow, ACCOUNT="fixed")).agreed


def test_a_run_that_does_not_end_is_given_up_and_goes_on(airflow: Airflow) -> None:
    airflow.states = ["running"]
    seen = call(hooks(airflow, timeout_ms=600))
    assert (seen.agreed, seen.seen["answer"]) == (False, "silence")
    assert "a run that was begun goes on" in seen.text


def test_what_cannot_be_called_is_found_before_anything_is_moved(airflow: Airflow) -> None:
    def problem(told: HookCaller) -> str:
        (found,) = told.problems(["warm"])
        return found

    assert hooks(airflow).problems(["warm"]) == ()
    assert hooks(airflow, "warm_caches/warm").problems(["warm"]) == ()
    assert "WATERSHED_AIRFLOW_URL" in problem(hooks(airflow, WATERSHED_AIRFLOW_URL=""))
    assert "WATERSHED_AIRFLOW_CREDENTIALS" in problem(hooks(airflow, WATERSHED_AIRFLOW_CREDENTIALS="ops:password"))
    assert "gives user ops no token" in problem(hooks(airflow, ACCOUNT="ops:wrong"))
    assert "answered 404" in problem(hooks(airflow, "cold_caches"))
    assert "answered 404" in problem(hooks(airflow, "warm_caches/absent"))
    airflow.paused = True
    assert "is paused" in problem(hooks(airflow))
    assert airflow.runs == {}


def test_credentials_are_never_told(airflow: Airflow) -> None:
    seen = [call(hooks(airflow)), hooks(airflow, ACCOUNT="ops:wrong:secret").problems(["warm"])]
    assert "word" not in str(seen)
    assert "secret" not in str(seen)
