"""A small client for Airflow's REST API: trigger, follow, answer approvals.

Every call may be repeated: runs are triggered under ids that the caller fixes, so that an answer lost on the
way (or a busy SQLite, which says 500) is simply asked for again.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
FINAL_RUN_STATES = ("success", "failed")


class AirflowRequestFailed(Exception):
    """Airflow refused a request; `status` is the HTTP status (0: no answer)."""

    def __init__(self, what: str, status: int, text: str) -> None:
        super().__init__(f"airflow: {what}: {status or 'no answer'} {text}".strip())
        self.status = status


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """State of one task instance. duration: seconds, None before it starts. host: where it runs or ran last; "" before
    it starts."""

    name: str
    state: str | None
    duration: float | None
    started: str | None
    map_index: int = -1
    host: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """An approval somebody has to give."""

    dag: str
    run: str
    task: str
    map_index: int
    subject: str
    body: str


class AirflowClient:
    """One user's session. Raises AirflowRequestFailed; retries what a busy server refuses, for `patience` seconds."""

    def __init__(self, url: str, user: str = "admin", password: str | None = None, patience: float = 60.0) -> None:
        self.url = url
        self._login = {"username": user, "password": password or user}  # lab.airflow: the user's name
        self._patience = patience
        self._token: str | None = None

    def dag_ids(self) -> set[str]:
        """The DAGs that Airflow has parsed so far."""
        return {dag["dag_id"] for dag in self._call("GET", "/api/v2/dags?limit=500")["dags"]}

    def import_errors(self) -> list[str]:
        """`file: stack trace` of every DAG file that Airflow could not import."""
        found = self._call("GET", "/api/v2/importErrors")["import_errors"]
        return [f"{each['filename']}: {each['stack_trace']}" for each in found]

    def wait_for_dag(self, dag: str, timeout: float = 120.0) -> None:
        """Raises AirflowRequestFailed with the import errors when the DAG does not appear."""
        deadline = time.monotonic() + timeout
        while dag not in self.dag_ids():
            if time.monotonic() > deadline:
                raise AirflowRequestFailed(f"no DAG {dag}", 404, "\n".join(self.import_errors()))
            time.sleep(0.5)

    def unpause(self, dag: str) -> None:
        """Lets the scheduler start runs of the DAG."""
        self._call("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def trigger(self, dag: str, run: str, conf: Mapping[str, Any]) -> None:
        """Start a run under this id; that it is there already (409) is fine."""
        body = {"dag_run_id": run, "logical_date": None, "conf": dict(conf)}
        try:
            self._call("POST", f"/api/v2/dags/{dag}/dagRuns", body)
        except AirflowRequestFailed as answer:
            if answer.status != 409:
                raise

    def run_state(self, dag: str, run: str) -> str:
        """Airflow's word for the run: queued, running, success or failed."""
        return str(self._call("GET", f"/api/v2/dags/{dag}/dagRuns/{_quoted(run)}")["state"])

    def tasks(self, dag: str, run: str) -> list[TaskInstance]:
        """Task instances in the order they started; those that have not, last."""
        path = f"/api/v2/dags/{dag}/dagRuns/{_quoted(run)}/taskInstances?limit=500"
        found = [_task(each) for each in self._call("GET", path)["task_instances"]]
        return sorted(found, key=lambda task: task.started or "~")

    def task(self, dag: str, run: str, name: str) -> TaskInstance:
        """One that is not mapped. Cheaper for Airflow than all of them."""
        return _task(self._call("GET", f"/api/v2/dags/{dag}/dagRuns/{_quoted(run)}/taskInstances/{name}"))

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> list[str]:
        """The events of a task's log; that of an error with what it says."""
        path = f"/api/v2/dags/{dag}/dagRuns/{_quoted(run)}/taskInstances/{task}/logs/{attempt}"
        content = self._call("GET", path)["content"]
        return [_event(line) if isinstance(line, dict) else str(line) for line in content]

    def questions(self, dag: str, run: str) -> list[ApprovalQuestion]:
        """Approvals of the run that nobody has answered."""
        path = f"/api/v2/dags/{dag}/dagRuns/{_quoted(run)}/hitlDetails?response_received=false"
        return [
            ApprovalQuestion(dag, run, ti["task_id"], ti["map_index"], each["subject"], each.get("body") or "")
            for each in self._call("GET", path)["hitl_details"]
            for ti in [each["task_instance"]]
            if ti["state"] == "awaiting_input"
        ]

    def answer(self, question: ApprovalQuestion, choice: str) -> None:
        """`Approve` or `Reject`; that somebody was faster (409) is fine."""
        path = (
            f"/api/v2/dags/{question.dag}/dagRuns/{_quoted(question.run)}"
            f"/taskInstances/{question.task}/{question.map_index}/hitlDetails"
        )
        try:
            self._call("PATCH", path, {"chosen_options": [choice], "params_input": {}})
        except AirflowRequestFailed as answer:
            if answer.status != 409:
                raise

    def mark(self, dag: str, run: str, task: str, state: str) -> None:
        """What "mark success" and "mark failed" of the interface do; `state` is `success` or `failed`."""
        path = f"/api/v2/dags/{dag}/dagRuns/{_quoted(run)}/taskInstances/{task}"
        self._call("PATCH", path, {"new_state": state})

    def clear(self, dag: str, run: str, tasks: list[str]) -> None:
        """Let tasks of a run, and all after them, begin again."""
        body = {"dag_run_id": run, "task_ids": tasks, "dry_run": False, "include_downstream": True}
        body |= {"only_failed": False, "reset_dag_runs": True}
        self._call("POST", f"/api/v2/dags/{dag}/clearTaskInstances", body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                if self._token is None:
                    self._token = self._send("POST", "/auth/token", self._login)["access_token"]
                return self._send(method, path, body)
            except AirflowRequestFailed as answer:
                if answer.status == 401:
                    self._token = None
                elif 0 < answer.status < 500:
                    raise
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)  # noqa: S310
        what = f"{method} {path.partition('?')[0]}"
        try:
            with _OPENER.open(request, timeout=30) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as refused:
            raise AirflowRequestFailed(what, refused.code, _detail(refused)) from None
        except (OSError, ValueError) as silence:
            raise AirflowRequestFailed(what, 0, str(silence)) from None


def _task(told: Mapping[str, Any]) -> TaskInstance:
    times = told["duration"], told["start_date"]
    return TaskInstance(told["task_id"], told["state"], *times, told["map_index"], told.get("hostname") or "")


def _event(line: Mapping[str, Any]) -> str:
    reasons = [str(each.get("exc_value")) for each in line.get("error_detail") or []]
    return ": ".join([str(line.get("event", line)), *reasons])


def _detail(refused: urllib.error.HTTPError) -> str:
    text = refused.read().decode(errors="replace")
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(text).get("detail", text))[:2000]
    return text[:500]


def _quoted(run: str) -> str:
    return urllib.parse.quote(run, safe="")
