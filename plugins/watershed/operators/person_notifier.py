"""Tells people that a run waits for one of them: every question of Watershed's DAGs has this notifier.

`WATERSHED_NOTIFIERS` names a YAML file of the host (docs/airflow-operations.md):

    notifiers:
      - webhook: https://hooks.example.internal/awaited     # a host of WATERSHED_HOOK_HOSTS
        secret: {env: WATERSHED_SECRET_AWAITED}
      - class: airflow.providers.smtp.notifications.smtp.SmtpNotifier   # any BaseNotifier of Airflow
        arguments: {to: oncall@example.internal, subject: "{{ question.subject }}", html_content: "{{ question.link }}"}

The question is there before anybody is told, and stays there whatever becomes of that. Without the variable nobody is
told; the page says that a person is awaited all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.notifier import BaseNotifier

from clusters.deadline import run_with_deadline
from topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from cutover.hooks.http_hook import HttpHook

NOTIFIERS_VARIABLE = "WATERSHED_NOTIFIERS"
MANUAL = "docs/airflow-operations.md#who-is-told-that-a-person-is-awaited"
NOTIFY_S = 15.0  # for each; the task holds a worker slot meanwhile
_MOST_LETTERS = 4_000  # of a question's text; the whole is behind its link


class NotifierRefused(Exception):
    """The settings name something that cannot be told; the message says what to correct."""


@dataclass(frozen=True, slots=True)
class AwaitedQuestion:
    """What is told: the DAG run and the task that wait, the headline, the text as Markdown, the possible answers, and
    where they are given ("" where `[api] base_url` of Airflow is not set). attempt: of the task, from 1. until: when
    the run goes on without an answer, ISO 8601; "" for never."""

    topology: str
    dag: str
    run: str
    task: str
    attempt: int
    subject: str
    text: str
    options: tuple[str, ...]
    link: str
    until: str


class PersonAwaitedNotifier(BaseNotifier):
    """Tells everybody whom the settings name. A failure is an error in the task's log, and never one of the task."""

    def notify(self, context: Any) -> None:
        """Tells one after the other, each for NOTIFY_S at most."""
        from cutover.live.host_settings import HostSettingsRefused

        try:
            entries = _read_entries(os.environ)
        except (HostSettingsRefused, NotifierRefused) as refused:
            self.log.error("nobody was told that a person is awaited: %s", escape_control_lines(str(refused)))
            return
        if not entries:
            return
        question = describe_question(context)
        for entry in entries:
            name = entry.get("webhook") or entry.get("class")
            try:
                run_with_deadline(NOTIFY_S, partial(_tell, entry, question, context))
                self.log.info("told %s that a person is awaited", escape_control_lines(str(name)))
            except Exception as error:  # noqa: BLE001 (whatever somebody's notifier raises: the question is asked)
                why = f"no end in {NOTIFY_S:g} s" if isinstance(error, TimeoutError) else str(error)
                said = escape_control_lines(f"{name} was not told that a person is awaited: {why or type(error)}")
                self.log.error("%s. Correct %s, or what it names", said, os.environ[NOTIFIERS_VARIABLE])


def describe_question(context: Any) -> AwaitedQuestion:
    """The question of the task that asks, which is `context["task"]`."""
    task, ti = context["task"], context["ti"]
    try:
        link = task.generate_link_to_ui(task_instance=ti)
    except ValueError:  # Airflow does not know its own address
        link = ""
    until = task.hitl_summary_extra.get("timeout_datetime") or ""
    body = str(task.body or "")
    text = body if len(body) <= _MOST_LETTERS else f"{body[:_MOST_LETTERS]}…"
    topology, attempt = ti.dag_id.partition("__")[2], int(ti.try_number)
    return AwaitedQuestion(
        topology, ti.dag_id, ti.run_id, ti.task_id, attempt, str(task.subject), text, tuple(task.options), link, until
    )


def find_notifier_problems(environ: Mapping[str, str]) -> list[str]:
    """What would keep somebody from being told, each with its remedy. Nobody is told anything."""
    from clusters.errors import SecretMissing
    from cutover.live.host_settings import HostSettingsRefused

    found: list[str] = []
    try:
        for entry in _read_entries(environ):
            try:
                if "webhook" in entry:
                    found += _build_webhook(entry, environ).problems()
                else:
                    _build_notifier(entry)
            except (NotifierRefused, SecretMissing) as problem:
                found.append(str(problem))
    except (HostSettingsRefused, NotifierRefused) as refused:
        found.append(str(refused))
    return found


def _read_entries(environ: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """Raises HostSettingsRefused, NotifierRefused."""
    from cutover.live.host_settings import read_host_settings

    path = environ.get(NOTIFIERS_VARIABLE, "").strip()
    if not path:
        return ()
    entries = read_host_settings(Path(path), NOTIFIERS_VARIABLE, "notifiers", MANUAL)
    if not isinstance(entries, list) or not all(_is_entry(each) for each in entries):
        raise NotifierRefused(
            f"`notifiers` in {path} is a list; each has `webhook` (an address) and perhaps `secret`, or `class` (a "
            f"path of Python) and perhaps `arguments` (a mapping), and nothing else; see {MANUAL}"
        )
    return entries


def _is_entry(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    if "webhook" in value:
        return isinstance(value["webhook"], str) and value.keys() <= {"webhook", "secret"}
    return (
        isinstance(value.get("class"), str)
        and isinstance(value.get("arguments", {}), dict)
        and value.keys() <= {"class", "arguments"}
    )


def _tell(entry: dict[str, Any], question: AwaitedQuestion, context: Any) -> None:
    """Raises whatever keeps it from being told."""
    if "webhook" in entry:
        _call_webhook(_build_webhook(entry, os.environ), question)
        return
    # Without the DAG: ours render templates to Python objects, and a headline is a text whatever is in it.
    shown = {name: value for name, value in context.items() if name != "dag"}
    _build_notifier(entry)({**shown, "question": question})


def _build_notifier(entry: dict[str, Any]) -> BaseNotifier:
    """A new one each time: what is told is rendered into its fields. Raises NotifierRefused."""
    from airflow.sdk._shared.module_loading import import_string

    path = str(entry["class"])
    try:
        kind = import_string(path)
    except ImportError as error:
        raise NotifierRefused(f"notifier {path} cannot be imported on this host ({error}); install it") from None
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise NotifierRefused(f"notifier {path} is no class that extends airflow.sdk.bases.notifier.BaseNotifier")
    try:
        return kind(**entry.get("arguments", {}))
    except Exception as error:  # noqa: BLE001 (a constructor of somebody else)
        raise NotifierRefused(f"notifier {path} does not take these arguments: {error}") from None


def _build_webhook(entry: dict[str, Any], environ: Mapping[str, str]) -> HttpHook:
    """Raises NotifierRefused, SecretMissing."""
    from clusters.secrets import SecretResolver
    from cutover.hooks.http_hook import HttpHook
    from topology.secret_ref import SecretRef

    secret, given = None, entry.get("secret")
    if given is not None:
        if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= {"env", "file", "airflow_connection"}:
            raise NotifierRefused(f"`secret` of {entry['webhook']} is one of env, file, airflow_connection; correct it")
        [(kind, name)] = given.items()
        vault = SecretResolver("", environ, where=NOTIFIERS_VARIABLE, own=True)
        secret = vault.text("secret", SecretRef(kind, str(name)))
    return HttpHook(entry["webhook"], secret, NOTIFY_S - 1, environ, time.monotonic, time.sleep, time.time)


def _call_webhook(hook: HttpHook, question: AwaitedQuestion) -> None:
    """As hooks are called (docs/hooks.md), at the point `awaited`. Raises NotifierRefused unless it says yes."""
    from cutover.hooks.hook_messages import HookCall

    told = asdict(question)
    key = f"{question.dag}/{question.run}/{question.task}/{question.attempt}"
    wave = question.task.rpartition(".")[0].partition(".")[0]
    at_ms = int(time.time() * 1000)
    reply = hook.call(HookCall(question.topology, question.run, wave, "notifier", "awaited", key, told, at_ms))
    if reply.word != "yes":
        raise NotifierRefused(reply.text)
