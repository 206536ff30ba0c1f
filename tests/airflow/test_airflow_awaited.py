"""Who is told that a run waits for a person: by webhook, by mail, by any notifier of Airflow; and what fails then."""

from __future__ import annotations

import hashlib
import hmac
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.providers.standard.operators import hitl
from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.log import redact

from tests.airflow.test_airflow_dags import folder, load
from watershed.plugins.operators import person_notifier
from watershed.plugins.operators.person_notifier import PersonAwaitedNotifier, find_notifier_problems

__all__ = ["folder"]
HERE = "tests.airflow.test_airflow_awaited"
SEEN = {"is_needed": True, "question": "[1, 2]", "text": "15 records", "notes": [], "basis": "10 to 24"}


class Kept(BaseNotifier):
    """Keeps what it is told, rendered."""

    template_fields = ("text",)
    told: ClassVar[list[str]] = []

    def __init__(self, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text = text

    def notify(self, context: Any) -> None:
        self.told.append(self.text)


class Broken(BaseNotifier):
    def __init__(self, url: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.url = url

    def notify(self, context: Any) -> None:
        raise RuntimeError(f"no such channel at {self.url}\n[31m")


class Picky(BaseNotifier):
    def __init__(self, token: str) -> None:
        raise ValueError(f"{token} is no token")


class Exits(BaseNotifier):
    def notify(self, context: Any) -> None:
        raise SystemExit(3)


class HangsWhenMade(BaseNotifier):
    def __init__(self) -> None:
        time.sleep(5)


class Hangs(BaseNotifier):
    def notify(self, context: Any) -> None:
        time.sleep(5)


@pytest.fixture
def asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the task `approve` of the real DAG `decide__orders` ask; returns when its question is there."""
    asked: list[str] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: asked.append(detail["subject"]))
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/base")
    dag = load().dags["decide__orders"]
    Kept.told.clear()

    def ask() -> None:
        task = dag.get_task("approve")
        ti = SimpleNamespace(
            dag_id=dag.dag_id, run_id="manual 1", task_id="approve", map_index=-1, id="1", try_number=2,
            xcom_pull=lambda _task: SEEN,
        )  # fmt: skip
        before = len(asked)
        with pytest.raises(TaskAwaitingInput):
            task.execute({"ti": ti, "task_instance": ti, "task": task, "dag": dag, "params": {}})
        assert len(asked) == before + 1

    return ask


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the host's file."""

    def write(entries: Any) -> Path:
        path = tmp_path / "notifiers.yaml"
        path.write_text(json.dumps({"notifiers": entries}))
        path.chmod(0o600)
        monkeypatch.setenv("WATERSHED_NOTIFIERS", str(path))
        return path

    return write


@contextmanager
def served(status: int = 200, *, echo: bool = False) -> Iterator[tuple[str, list[tuple[Any, bytes]]]]:
    heard: list[tuple[Any, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.headers, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.end_headers()
            if echo:
                self.wfile.write(f"{self.path} is not registered".encode())

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/awaited", heard
    server.shutdown()
    server.server_close()


def test_every_question_of_every_dag_has_the_notifier(folder: Path) -> None:
    asking = [task for dag in load().dags.values() for task in dag.tasks if isinstance(task, HITLOperator)]
    assert {task.dag_id.partition("__")[0] for task in asking} >= {
        "migrate",
        "rollback",
        "decide",
        "replicate",
        "drill",
    }
    assert all([type(each) for each in task.notifiers] == [PersonAwaitedNotifier] for task in asking)


def test_a_webhook_gets_a_signed_request(asks: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSHED_HOOK_HOSTS", "loopback")
    monkeypatch.setenv("WATERSHED_SECRET_AWAITED", "s3cret")
    with served() as (url, heard):
        settings([{"webhook": url, "secret": {"env": "WATERSHED_SECRET_AWAITED"}}])
        asks()
    [(headers, body)] = heard
    stamp = headers["X-Watershed-Timestamp"]
    expected = hmac.new(b"s3cret", stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["X-Watershed-Signature"] == f"v1={expected}"
    told = json.loads(body)
    assert (told["topology"], told["point"], told["key"]) == ("orders", "awaited", "decide__orders/manual 1/approve/2")
    assert told["body"]["subject"] == "[1, 2]"
    assert "15 records" in told["body"]["text"]
    assert told["body"]["options"] == ["Approve", "Reject"]
    assert told["body"]["link"].startswith("https://airflow.example/")
    assert "/dags/decide__orders/runs/manual 1/tasks/approve/required_actions" in told["body"]["link"]


def test_any_notifier_of_airflow_is_told(asks: Any, settings: Any) -> None:
    """A headline that would be a list of Python stays a text, whatever the DAG makes of its own templates."""
    settings([{"class": f"{HERE}.Kept", "arguments": {"text": "{{ question.subject }}: {{ ti.task_id }}"}}] * 2)
    asks()
    assert Kept.told == ["[1, 2]: approve"] * 2
    asks()
    assert len(Kept.told) == 4


def test_airflows_own_mail_is_sent(asks: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mail: list[str] = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline().decode().strip():
                verb = line.partition(" ")[0].upper()
                if verb == "DATA":
                    self.wfile.write(b"354 go on\r\n")
                    while (text := self.rfile.readline()) not in (b".\r\n", b""):
                        mail.append(text.decode())
                self.wfile.write(b"221 bye\r\n" if verb == "QUIT" else b"250 ok\r\n")
                if verb == "QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        extra = "disable_tls=true&disable_ssl=true&timeout=5&retry_limit=1"
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:{server.server_address[1]}/?{extra}")
        told = {
            "to": "oncall@example.internal",
            "from_email": "airflow@example.internal",
            "subject": "{{ question.topology }}: {{ question.subject }}",
            "html_content": "{{ question.text | e }}",
        }
        settings([{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "arguments": told}])
        asks()
        server.shutdown()
    sent = message_from_string("".join(mail))
    assert (sent["Subject"], sent["To"]) == ("orders: [1, 2]", "oncall@example.internal")
    [part] = sent.get_payload()
    assert b"15 records" in part.get_payload(decode=True)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"class": f"{HERE}.Broken"}], "Broken) was not told that a person is awaited: RuntimeError"),
        ([{"class": f"{HERE}.Hangs"}], "Hangs) was not told that a person is awaited: no end in 0.2 s"),
        ([{"class": f"{HERE}.Exits"}], "Exits) was not told that a person is awaited: SystemExit"),
        (
            [{"webhook": "https://elsewhere.example/x"}],
            "told that a person is awaited: elsewhere.example is not allowed",
        ),
        ("all", "`notifiers` in "),
    ],
)
def test_a_failure_is_an_error_in_the_log_and_the_question_is_asked(
    asks: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    entries: Any,
    words: str,
) -> None:
    monkeypatch.setattr(person_notifier, "NOTIFY_S", 0.2)
    settings(entries)
    capsys.readouterr()
    asks()
    assert len([line for line in capsys.readouterr().out.splitlines() if words in line and "[error" in line]) == 1


@pytest.mark.parametrize("broken", ["_read_entries", "describe_question"])
def test_a_fault_of_our_own_is_an_error_in_the_log_too(
    asks: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    def fail(_given: Any) -> Any:
        raise KeyError("maybe")

    settings([{"class": f"{HERE}.Kept", "arguments": {"text": "x"}}])
    monkeypatch.setattr(person_notifier, broken, fail)
    asks()
    assert "nobody was told that a person is awaited: KeyError" in capsys.readouterr().out


def test_all_are_told_at_once(asks: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three that hang and one that does not: the deadline is one for all, and nobody waits behind another."""
    monkeypatch.setattr(person_notifier, "NOTIFY_S", 1.5)
    settings([{"class": f"{HERE}.Hangs"}] * 3 + [{"class": f"{HERE}.Kept", "arguments": {"text": "told"}}])
    waits: list[float] = []
    wait = person_notifier.wait
    monkeypatch.setattr(person_notifier, "wait", lambda works, seconds: (waits.append(seconds), wait(works, seconds)))
    asks()
    assert (waits, Kept.told) == ([1.5], ["told"])


def test_no_secret_of_the_settings_is_in_the_log(
    asks: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATERSHED_HOOK_HOSTS", "loopback")
    secret = "s3cr3t-p4th"
    with served(status=404, echo=True) as (url, heard):
        host = url.removeprefix("http://").removesuffix("/awaited")
        entries = [
            {"webhook": f"http://{host}/{secret}?token={secret}-q"},
            {"webhook": f"https://ann:{secret}@elsewhere.example/{secret}"},
            {"class": f"{HERE}.Broken", "arguments": {"url": f"https://chat.example/{secret}"}},
            {"class": f"{HERE}.Picky", "arguments": {"token": secret}},
        ]
        path = settings(entries)
        asks()
        found = find_notifier_problems({"WATERSHED_NOTIFIERS": str(path), "WATERSHED_HOOK_HOSTS": "loopback"})
    assert len(heard) == 1
    lines = [each for each in capsys.readouterr().out.splitlines() if "was not told" in each]
    for number, words in enumerate(
        ("(127.0.0.1) was not told", "(elsewhere.example) was", "Broken) was", "`arguments` (token): ValueError"), 1
    ):
        [line] = [each for each in lines if f"notifier {number} (" in each]
        assert words in line
    assert len(found) == 2
    assert secret not in " ".join([*lines, *found])
    said = redact(f"Failed to send notification: https://chat.example/{secret}, {entries[0]['webhook']}")
    assert secret not in str(said)


def test_who_says_no_is_no_reason_not_to_tell_the_next(
    asks: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATERSHED_HOOK_HOSTS", "loopback")
    with served(status=404) as (url, heard):
        settings([{"webhook": url}, {"class": f"{HERE}.Kept", "arguments": {"text": "told"}}])
        asks()
    assert (len(heard), Kept.told) == (1, ["told"])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"class": "nowhere.at.All"}], "(nowhere.at.All): it cannot be imported on this host (no module nowhere)"),
        ([{"class": "raises.Any"}], "(raises.Any): it cannot be imported on this host (RuntimeError)"),
        ([{"class": "ends.Any"}], "(ends.Any): it cannot be imported on this host (SystemExit)"),
        ([{"class": "garbled.Any"}], "(garbled.Any): it cannot be imported on this host (SyntaxError)"),
        ([{"class": f"{HERE}.HangsWhenMade"}], "HangsWhenMade): no end in 1 s"),
        ([{"class": "pathlib.Path"}], "notifier 1 (pathlib.Path): it is no class that extends"),
        ([{"class": f"{HERE}.Kept", "arguments": {"words": 1}}], "does not take these `arguments` (words): TypeError"),
        ([{"webhook": "https://elsewhere.example/a b"}], "each has `webhook`"),
        ([{"webhook": ""}], "each has `webhook`"),
        ([{"webhook": "elsewhere"}], "notifier 1 (no host): the address names no host"),
        ([{"webhook": "https://elsewhere.example/x"}], "WATERSHED_HOOK_HOSTS=elsewhere.example"),
        ([{"webhook": "http://127.0.0.1/x", "secret": "text"}], "is one of env, file, airflow_connection"),
        ([{"webhook": "http://127.0.0.1/x", "secret": {"env": "WATERSHED_SECRET_ABSENT"}}], "is not set"),
        ([{"webhook": "http://127.0.0.1/x", "class": "x"}], "each has `webhook`"),
        ([{"class": "x", "arguments": []}], "each has `webhook`"),
    ],
)
def test_what_would_keep_somebody_from_being_told_is_found_before(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: Any, words: str
) -> None:
    for name, text in (("raises", "raise RuntimeError"), ("ends", "raise SystemExit"), ("garbled", "def")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(person_notifier, "CHECK_S", 1.0 if "HangsWhenMade" in str(entries) else 60.0)
    environ = {"WATERSHED_NOTIFIERS": str(settings(entries))}
    assert words in " ".join(find_notifier_problems(environ))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("notifier: []", "has to hold `notifiers:`, and nothing else"),
        ("notifiers: !!bool maybe", "is no YAML"),
        ("notifiers: !!timestamp x", "is no YAML"),
    ],
)
def test_the_first_task_warns_of_it(
    folder: Path, settings: Any, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    task = load().dags["decide__orders"].get_task("compile")
    task.expected = ""
    settings([]).write_text(text)
    plan = task.execute({"ti": None})
    assert plan.startswith("sha256:")
    assert words in capsys.readouterr().out


def test_a_file_that_others_could_have_written_names_nobody(settings: Any) -> None:
    path = settings([{"class": f"{HERE}.Kept", "arguments": {"text": "x"}}])
    assert find_notifier_problems({"WATERSHED_NOTIFIERS": str(path)}) == []
    path.chmod(0o622)
    assert "could have been written by others" in find_notifier_problems({"WATERSHED_NOTIFIERS": str(path)})[0]
    assert find_notifier_problems({}) == []
