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
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.log import mask_secret

from watershed.clusters.deadline import start_work
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.cutover.hooks.hook_messages import HookReply
    from watershed.cutover.hooks.http_hook import HttpHook

NOTIFIERS_VARIABLE = "WATERSHED_NOTIFIERS"
MANUAL = "docs/airflow-operations.md#who-is-told-that-a-person-is-awaited"
NOTIFY_S = 6.0  # for all together; an answer that comes meanwhile counts when the task has ended (Airflow keeps it)
CHECK_S = 15.0  # for all together
_SHORTEST_SECRET = 8  # letters of a part of an address
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

    def __call__(self, *args: Any) -> None:
        """Airflow's own renders templates first and raises what fails; here is no template, and nothing is raised."""
        self.notify(args[0])

    def notify(self, context: Any) -> None:
        """Tells all at once, for NOTIFY_S at most."""
        try:
            self._tell_all(context)
        except Exception as error:  # noqa: BLE001 (the question is asked, whatever becomes of this)
            self.log.error("nobody was told that a person is awaited: %s", _explain(error))

    def _tell_all(self, context: Any) -> None:
        entries = _read_entries(os.environ)
        if not entries:
            return
        question = describe_question(context)
        for name, failure in _do_each(entries, partial(_tell, question, context), NOTIFY_S):
            if failure:
                remedy = f"Correct {os.environ[NOTIFIERS_VARIABLE]}, or what it names"
                self.log.error("%s was not told that a person is awaited: %s. %s", name, failure, remedy)
            else:
                self.log.info("told %s that a person is awaited", name)


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
    """What would keep somebody from being told, each with its remedy, in CHECK_S at most. Nobody is told anything."""
    try:
        entries = _read_entries(environ)
        found = _do_each(entries, partial(_check, environ), CHECK_S)
        return [f"{name}: {failure}" for name, failure in found if failure]
    except Exception as error:  # noqa: BLE001 (no run fails because nobody would be told)
        return [_explain(error)]


def _do_each(
    entries: Sequence[dict[str, Any]], do: Callable[[dict[str, Any]], None], seconds: float
) -> Iterator[tuple[str, str]]:
    """All at once. The name of each, and what kept it from being done; "" where nothing did."""
    for secret in (secret for entry in entries for secret in _list_secrets(entry)):
        mask_secret(secret)
    begun = [(_name_entry(number, entry), start_work(partial(do, entry))) for number, entry in enumerate(entries, 1)]
    wait([work for _, work in begun], seconds)
    for name, work in begun:
        yield name, _explain(work.exception()) if work.done() else f"no end in {seconds:g} s"


def _explain(error: BaseException | None) -> str:
    """Of what is not ours only its kind, because its words may quote a secret; empty for None."""
    from watershed.clusters.errors import SecretMissing
    from watershed.cutover.live.host_settings import HostSettingsRefused

    if error is None:
        return ""
    ours = isinstance(error, (HostSettingsRefused, NotifierRefused, SecretMissing))
    return escape_control_lines(str(error)) if ours else type(error).__name__


def _name_entry(number: int, entry: dict[str, Any]) -> str:
    """Without what may be a secret in an address: everything but its host."""
    from watershed.cutover.live.allowed_hosts import parse_host

    what = (parse_host(entry["webhook"]) or "no host") if "webhook" in entry else entry["class"]
    return escape_control_lines(f"notifier {number} ({what})")


def _list_secrets(entry: dict[str, Any]) -> list[str]:
    """Texts of the settings that may be secrets, or hold one: an address and its longer parts but the host (services
    quote them when they refuse), and each text of `arguments`."""
    from watershed.cutover.live.allowed_hosts import parse_host

    if "webhook" not in entry:
        return list(_list_texts(entry.get("arguments", {})))
    url = entry["webhook"]
    parts = [each for each in re.split(r"[/?&=#@:]", url) if len(each) >= _SHORTEST_SECRET]
    return [url, *(each for each in parts if each.lower() != parse_host(url))]


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _list_texts(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _list_texts(each)


def _read_entries(environ: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """Raises HostSettingsRefused, NotifierRefused."""
    from watershed.cutover.live.host_settings import read_host_settings

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
        return _is_plain(value["webhook"]) and value.keys() <= {"webhook", "secret"}
    return (
        isinstance(value.get("class"), str)
        and isinstance(value.get("arguments", {}), dict)
        and value.keys() <= {"class", "arguments"}
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable() and " " not in value


def _check(environ: Mapping[str, str], entry: dict[str, Any]) -> None:
    """Raises whatever would keep it from being told."""
    if "webhook" not in entry:
        _build_notifier(entry)
    elif problems := _build_webhook(entry, environ).problems():
        raise NotifierRefused(_hide_secrets(entry, "; ".join(problems)))


def _tell(question: AwaitedQuestion, context: Any, entry: dict[str, Any]) -> None:
    """Raises whatever keeps it from being told."""
    if "webhook" in entry:
        reply = _call_webhook(_build_webhook(entry, os.environ), question)
        if reply.word != "yes":
            raise NotifierRefused(_hide_secrets(entry, reply.text))
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
    except BaseException as error:  # noqa: BLE001 (a module of somebody else: it may even end the process)
        why = f"no module {error.name}" if isinstance(error, ModuleNotFoundError) else type(error).__name__
        raise NotifierRefused(f"it cannot be imported on this host ({why}); install or correct it") from None
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise NotifierRefused("it is no class that extends airflow.sdk.bases.notifier.BaseNotifier")
    try:
        return kind(**entry.get("arguments", {}))
    except BaseException as error:  # noqa: BLE001 (a constructor of somebody else)
        given = ", ".join(map(str, entry.get("arguments", {}))) or "none"
        why = type(error).__name__
        raise NotifierRefused(f"it does not take these `arguments` ({given}): {why}; correct them") from None


def _build_webhook(entry: dict[str, Any], environ: Mapping[str, str]) -> HttpHook:
    """Raises NotifierRefused, SecretMissing."""
    from watershed.clusters.secrets import SecretResolver
    from watershed.cutover.hooks.http_hook import HttpHook
    from watershed.topology.secret_ref import SecretRef

    secret, given = None, entry.get("secret")
    if given is not None:
        if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= {"env", "file", "airflow_connection"}:
            raise NotifierRefused("its `secret` is one of env, file, airflow_connection; correct it")
        [(kind, name)] = given.items()
        vault = SecretResolver("", environ, where=NOTIFIERS_VARIABLE, own=True)
        secret = vault.text("secret", SecretRef(kind, str(name)))
    return HttpHook(entry["webhook"], secret, NOTIFY_S - 1, environ, time.monotonic, time.sleep, time.time)


def _call_webhook(hook: HttpHook, question: AwaitedQuestion) -> HookReply:
    """As hooks are called (docs/hooks.md), at the point `awaited`."""
    from watershed.cutover.hooks.hook_messages import HookCall

    told = asdict(question)
    key = f"{question.dag}/{question.run}/{question.task}/{question.attempt}"
    wave = question.task.rpartition(".")[0].partition(".")[0]
    at_ms = int(time.time() * 1000)
    return hook.call(HookCall(question.topology, question.run, wave, "notifier", "awaited", key, told, at_ms))


def _hide_secrets(entry: dict[str, Any], text: str) -> str:
    """The text without the parts of the address; the address as a whole is its host."""
    from watershed.cutover.live.allowed_hosts import parse_host

    url, *parts = _list_secrets(entry)
    text = text.replace(url, parse_host(url) or "the address")
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "…")
    return text
