"""A hook as a run of a DAG, through Airflow's REST API v2 (Airflow 3).

The run's id follows from the key: a second call finds the run of the first (409) and waits for that. A run that failed
stays failed until somebody clears it in Airflow; the hook then goes on with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from clusters.errors import SecretMissing
from clusters.secrets import SecretResolver
from cutover.hooks.hook_messages import HookCall, HookReply
from cutover.live.bounded_http import NoHttpAnswer, call_http
from topology.secret_ref import SecretRef

_URL = "WATERSHED_AIRFLOW_URL"
_CREDENTIALS = "WATERSHED_AIRFLOW_CREDENTIALS"
_REQUEST_S = 15.0
_PAUSES = (0.2, 0.5, 1.0, 2.0)
_KINDS = ("env", "file", "airflow_connection")
_GOOD, _BAD = frozenset({"success"}), frozenset({"failed", "upstream_failed", "skipped", "removed"})


class _Said(Exception):
    """Airflow refused."""


@dataclass(slots=True)
class AirflowHook:
    """task: `dag_id` or `dag_id/task_id`: only that task is waited for. seconds: bound of it all."""

    task: str
    seconds: float
    environ: Mapping[str, str]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    _token: str | None = field(init=False, default=None)

    def problems(self) -> list[str]:
        """Why the hook cannot be called: credentials, a DAG that is missing or paused. Asks Airflow up to three
        times."""
        for last, pause in zip((False, False, True), _PAUSES, strict=False):
            try:
                return self._wrong()
            except (SecretMissing, NoHttpAnswer, _Said) as error:
                if last or not isinstance(error, NoHttpAnswer):
                    return [str(error)]
                self.sleep(pause)
        return []

    def _wrong(self) -> list[str]:
        dag, task = self._names()
        if self._json("GET", f"/dags/{_quoted(dag)}", None).get("is_paused"):
            return [f"DAG {dag} is paused in Airflow, its runs would wait for ever; switch it on"]
        if task is not None:
            self._json("GET", f"/dags/{_quoted(dag)}/tasks/{_quoted(task)}", None)
        return []

    def call(self, asked: HookCall) -> HookReply:
        """Triggers the DAG run (its id comes from the call's key, so it runs once) and waits for its end."""
        try:
            dag, task = self._names()
        except _Said as error:
            return HookReply("no", str(error), 0)
        run, ends, tries = build_dag_run_id(asked), self.clock() + self.seconds, 0
        state, text = "not asked", "not asked"
        while True:
            tries += 1
            try:
                state = self._state(dag, task, run, asked, begun=state != "not asked")
                text = f"{self.task}, run {run}: {state}"
                if state in _GOOD:
                    return HookReply("yes", text, tries)
                if state in _BAD:
                    return HookReply(
                        "no", f"{text}. Clear it in Airflow and call again, or start a new migration", tries
                    )
            except NoHttpAnswer as silence:
                text = str(silence)
                if not silence.transient:
                    return HookReply("no", text, tries)
            except (_Said, SecretMissing) as error:
                return HookReply("no", str(error), tries)
            pause = _PAUSES[min(tries, len(_PAUSES)) - 1]
            if self.clock() + pause >= ends:
                return HookReply("silence", f"{text} after {self.seconds:g} s; a run that was begun goes on", tries)
            self.sleep(pause)

    def _state(self, dag: str, task: str | None, run: str, asked: HookCall, *, begun: bool) -> str:
        base = f"/dags/{_quoted(dag)}/dagRuns"
        if not begun:
            order = {"dag_run_id": run, "logical_date": None, "conf": {"watershed": asked.to_json()}}
            self._json("POST", base, order, fine=(409,))
        reply = self._json("GET", f"{base}/{_quoted(run)}" + (f"/taskInstances/{_quoted(task)}" if task else ""), None)
        state = str(reply.get("state") or "queued")
        if task is not None and state not in _GOOD | _BAD:  # a run that ended without coming to the task
            whole = str(self._json("GET", f"{base}/{_quoted(run)}", None).get("state"))
            return whole if whole in _BAD else state
        return state

    def _names(self) -> tuple[str, str | None]:
        """Raises _Said: whatever stands in the file, the request asks for a DAG and for nothing else."""
        dag, _, task = self.task.partition("/")
        if not dag or not {dag, task}.isdisjoint((".", "..")) or "/" in task:
            raise _Said(f"airflow_task `{self.task}` is neither `dag_id` nor `dag_id/task_id`; correct the hook")
        return dag, task or None

    def _settings(self) -> tuple[str, str]:
        """(address of the REST API, credentials). Raises _Said, SecretMissing."""
        url, where = self.environ.get(_URL, "").rstrip("/"), self.environ.get(_CREDENTIALS, "")
        kind, _, name = where.partition(":")
        if not url:
            raise _Said(f"no Airflow is known here: set {_URL}=http://HOST:8080 and {_CREDENTIALS}=file:PATH")
        if kind not in _KINDS or not name:
            raise _Said(
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
        """Raises NoHttpAnswer, _Said, SecretMissing. One request more when a token has run out."""
        url, credentials = self._settings()
        for attempt in (1, 2):
            if self._token is None:
                self._token = self._logged_in(url, credentials)
            status, reply = _asked(method, f"{url}/api/v2{path}", body, {"Authorization": f"Bearer {self._token}"})
            if status != 401 or attempt == 2:
                break
            self._token = None
        if status in fine or 200 <= status < 300:
            return reply
        why = {401: f"the credentials ({_CREDENTIALS}) are refused", 403: "its user may not do that", 404: "not found"}
        detail = reply.get("detail") or why.get(status, "refused")
        raise _Said(f"Airflow at {url}: {method} {path} answered {status}: {str(detail)[:300]}")

    def _logged_in(self, url: str, credentials: str) -> str:
        user, colon, password = credentials.partition(":")
        if not colon:
            return credentials  # a token
        status, reply = _asked("POST", f"{url}/auth/token", {"username": user, "password": password}, {})
        if status in (200, 201) and reply.get("access_token"):
            return str(reply["access_token"])
        raise _Said(f"Airflow at {url} gives user {user} no token ({status}); correct {_CREDENTIALS}")


def _quoted(name: str) -> str:
    return quote(name, safe="")


def build_dag_run_id(asked: HookCall) -> str:
    """Of the DAG run: what people look for, and a digest of the whole key."""
    allowed = re.sub(r"[^A-Za-z0-9_.~:+-]+", "-", f"{asked.topology}.{asked.wave}.{asked.point}.{asked.name}")[:120]
    return f"watershed.{allowed}.{hashlib.sha256(asked.key.encode()).hexdigest()[:16]}"


def _asked(
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
