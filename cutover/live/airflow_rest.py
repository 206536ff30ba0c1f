"""Runs of DAGs through Airflow's REST API v2 (Airflow 3): what hooks and applications have in common that are one.

A run's id follows from a key: a second call finds the run of the first (409) and waits for that. A run that failed
stays failed until somebody clears it in Airflow.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from watershed.clusters.bounded_http import NoHttpAnswer, call_http
from watershed.clusters.secrets import SecretResolver
from watershed.topology.secret_ref import SecretRef

_URL = "WATERSHED_AIRFLOW_URL"
_CREDENTIALS = "WATERSHED_AIRFLOW_CREDENTIALS"
_REQUEST_S = 15.0
_KINDS = ("env", "file", "airflow_connection")
GOOD_RUN_STATES = frozenset({"success"})
BAD_RUN_STATES = frozenset({"failed", "upstream_failed", "skipped", "removed"})


class AirflowRefused(Exception):
    """Airflow said no, or cannot be asked with the settings of this host."""


@dataclass(slots=True)
class AirflowRest:
    """environ: where Airflow is, and as whom it is asked. Methods raise NoHttpAnswer, AirflowRefused, SecretMissing."""

    environ: Mapping[str, str]
    _token: str | None = field(init=False, default=None)

    def find_dag_problem(self, target: str) -> str | None:
        """Why `dag_id` or `dag_id/task_id` could not be run: paused. A DAG or task that is missing raises."""
        dag, task = split_dag_task(target)
        if self._json("GET", f"/dags/{_quoted(dag)}", None).get("is_paused"):
            return f"DAG {dag} is paused in Airflow, its runs would wait for ever; switch it on"
        if task is not None:
            self._json("GET", f"/dags/{_quoted(dag)}/tasks/{_quoted(task)}", None)
        return None

    def trigger(self, target: str, run: str, conf: dict[str, Any]) -> None:
        """Starts the run under this id; that it is there already is fine."""
        order = {"dag_run_id": run, "logical_date": None, "conf": {"watershed": conf}}
        self._json("POST", f"/dags/{_quoted(split_dag_task(target)[0])}/dagRuns", order, fine=(409,))

    def read_state(self, target: str, run: str) -> str:
        """Airflow's word for the state of the run, or of its task; that of the run where it ended before the task."""
        dag, task = split_dag_task(target)
        base = f"/dags/{_quoted(dag)}/dagRuns/{_quoted(run)}"
        reply = self._json("GET", base + (f"/taskInstances/{_quoted(task)}" if task else ""), None)
        state = str(reply.get("state") or "queued")
        if task is not None and state not in GOOD_RUN_STATES | BAD_RUN_STATES:
            whole = str(self._json("GET", base, None).get("state"))
            return whole if whole in BAD_RUN_STATES else state
        return state

    def has_run(self, target: str, run: str) -> bool:
        """Whether there is a run with this id."""
        base = f"/dags/{_quoted(split_dag_task(target)[0])}/dagRuns/{_quoted(run)}"
        return self._json("GET", base, None, fine=(404,)).get("state") is not None

    def is_under_way(self, target: str, run: str) -> bool:
        """Whether the run, or its task, has yet to end; not, where there is no such run."""
        return self.has_run(target, run) and self.read_state(target, run) not in GOOD_RUN_STATES | BAD_RUN_STATES

    def _settings(self) -> tuple[str, str]:
        """(address of the REST API, credentials). Raises AirflowRefused, SecretMissing."""
        url, where = self.environ.get(_URL, "").rstrip("/"), self.environ.get(_CREDENTIALS, "")
        kind, _, name = where.partition(":")
        if not url:
            raise AirflowRefused(f"no Airflow is known here: set {_URL}=http://HOST:8080 and {_CREDENTIALS}=file:PATH")
        if kind not in _KINDS or not name:
            raise AirflowRefused(
                f"set {_CREDENTIALS} to where `user:password` or a token stands: file:PATH, env:NAME or "
                "airflow_connection:ID"
            )
        ref = SecretRef.from_json({"kind": kind, "name": name})
        assert ref is not None
        vault = SecretResolver("", self.environ, where=_CREDENTIALS, own=True)
        text = vault.text(kind, ref)
        if kind != "airflow_connection" and re.fullmatch(r"[\w.~+/-]+=*", text):
            return url, text
        return url, ":".join(vault.account(kind, ref))

    def _json(self, method: str, path: str, body: dict[str, Any] | None, fine: tuple[int, ...] = ()) -> dict[str, Any]:
        """One request more when a token has run out."""
        url, credentials = self._settings()
        for attempt in (1, 2):
            if self._token is None:
                self._token = _log_in(url, credentials)
            status, reply = _request(method, f"{url}/api/v2{path}", body, {"Authorization": f"Bearer {self._token}"})
            if status != 401 or attempt == 2:
                break
            self._token = None
        if status in fine or 200 <= status < 300:
            return reply
        why = {401: f"the credentials ({_CREDENTIALS}) are refused", 403: "its user may not do that", 404: "not found"}
        detail = reply.get("detail") or why.get(status, "refused")
        raise AirflowRefused(f"Airflow at {url}: {method} {path} answered {status}: {str(detail)[:300]}")


def split_dag_task(target: str) -> tuple[str, str | None]:
    """(DAG, task or None). Raises AirflowRefused: whatever stands in the file, a request asks for a DAG and for nothing
    else."""
    dag, _, task = target.partition("/")
    if not dag or not {dag, task}.isdisjoint((".", "..")) or "/" in task:
        raise AirflowRefused(f"`{target}` is neither `dag_id` nor `dag_id/task_id`; correct it in the topology file")
    return dag, task or None


def build_dag_run_id(words: str, key: str) -> str:
    """Of the DAG run: what people look for, and a digest of the whole key."""
    allowed = re.sub(r"[^A-Za-z0-9_.~:+-]+", "-", words)[:120]
    return f"watershed.{allowed}.{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _log_in(url: str, credentials: str) -> str:
    user, colon, password = credentials.partition(":")
    if not colon:
        return credentials  # a token
    status, reply = _request("POST", f"{url}/auth/token", {"username": user, "password": password}, {})
    if status in (200, 201) and reply.get("access_token"):
        return str(reply["access_token"])
    raise AirflowRefused(f"Airflow at {url} gives user {user} no token ({status}); correct {_CREDENTIALS}")


def _request(
    method: str, url: str, body: dict[str, Any] | None, headers: Mapping[str, str]
) -> tuple[int, dict[str, Any]]:
    """Raises NoHttpAnswer, for 5xx too: a busy Airflow says 500."""
    content = None if body is None else json.dumps(body).encode()
    answer = call_http(method, url, content, {"Content-Type": "application/json", **headers}, _REQUEST_S)
    if answer.status >= 500 or answer.status == 429:
        raise NoHttpAnswer(f"{url} answered {answer.status}: {answer.text}")
    try:
        reply = json.loads(answer.body or b"{}")
    except (ValueError, RecursionError):
        reply = {"detail": answer.text}
    if 300 <= answer.status < 400:
        reply = {"detail": "redirects are not followed; correct the address"}
    return answer.status, reply if isinstance(reply, dict) else {}
