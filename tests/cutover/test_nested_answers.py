"""Answers over HTTP that are nested deep, or hold other types than they should, are errors with words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from watershed.clusters import oauth_tokens
from watershed.clusters.connection_parameters import OAuthSettings
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.token_providers import token_endpoint
from watershed.cutover.hooks.airflow_hook import AirflowHook
from watershed.cutover.hooks.hook_messages import HookCall
from watershed.cutover.hooks.http_hook import HttpHook

ASKED = HookCall("t", "r", "w", "n", "before", "k", {}, 1)


class _Nested(BaseHTTPRequestHandler):
    code, body = 200, b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(self.code)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Nested)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("code", [200, 400, 422])
@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"a":' * 10_000])
def test_nested_answers_are_errors_with_words(
    address: str, code: int, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Nested, "code", code)
    monkeypatch.setattr(_Nested, "body", body)
    with pytest.raises(ClusterError):
        RegistryClient(RegistrySettings("a", address)).subjects()
    with pytest.raises(ClusterError):
        oauth_tokens.fetch_token(
            ConnectionSettings(
                "a", ("127.0.0.1:1",), "x", None, "SASL_SSL", "OAUTHBEARER", "u", "p", oauth=OAuthSettings(address)
            )
        )
    environ = {"WATERSHED_HOOK_HOSTS": "loopback", "WATERSHED_AIRFLOW_URL": address,
               "WATERSHED_AIRFLOW_CREDENTIALS": "env:T", "T": "u:p"}  # fmt: skip
    heard = HttpHook(address, None, 1.0, environ, time.monotonic, time.sleep, time.time).call(ASKED)
    assert heard.word in ("yes", "no")
    assert AirflowHook("d", 1.0, environ, time.monotonic, time.sleep).call(ASKED).word == "no"


@pytest.mark.parametrize("code", [b'"abc"', b"[1]", b"1e999"])
def test_an_error_code_of_another_type_is_no_traceback(
    address: str, code: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Nested, "code", 422)
    monkeypatch.setattr(_Nested, "body", b'{"error_code": %b}' % code)
    with pytest.raises(ClusterError):
        RegistryClient(RegistrySettings("a", address)).subjects()


QUESTIONS: dict[str, Callable[[RegistryClient], object]] = {
    "mode": lambda registry: registry.mode(),
    "compatibility": lambda registry: registry.compatibility(),
    "versions": lambda registry: registry.versions("s"),
    "version": lambda registry: registry.version("s", 1),
    "schema": lambda registry: registry.schema(1),
    "lookup": lambda registry: registry.lookup("s", Schema('"string"')),
    "register": lambda registry: registry.register("s", Schema('"string"')),
}


@pytest.mark.parametrize("body", [b"[[1]]", b"7", b'"text"', b'["x", null]', b'{"id": 1e999}', b"true"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_registry_that_answers_another_type_is_named(
    address: str, question: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Nested, "code", 200)
    monkeypatch.setattr(_Nested, "body", body)
    with pytest.raises(ClusterError) as caught:
        QUESTIONS[question](RegistryClient(RegistrySettings("a", address)))
    assert address in str(caught.value)


class _Dripping(_Nested):
    """A byte now and then: each begins the timeout of a read anew."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        try:
            for _ in range(1000):
                self.wfile.write(b" ")
                time.sleep(0.02)
        except OSError:
            return

    do_GET = do_POST


@pytest.fixture
def dripping() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Dripping)
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_registry_that_drips_is_given_up_and_holds_nobody(dripping: str) -> None:
    registry = RegistryClient(RegistrySettings("a", dripping), deadline_s=0.3)
    for _ in range(2):  # the second finds the lock free
        with pytest.raises(Unreachable, match="no answer in time"):
            registry.subjects()


def test_a_token_endpoint_that_drips_is_given_up(dripping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_endpoint, "_DEADLINE_S", 0.3)
    settings = ConnectionSettings(
        "a", ("127.0.0.1:1",), "x", None, "SASL_SSL", "OAUTHBEARER", "u", "p", oauth=OAuthSettings(dripping)
    )
    with pytest.raises(Unreachable, match="no answer in time"):
        oauth_tokens.fetch_token(settings)


@pytest.mark.parametrize("task", ["dag/../../x", "..", ".", "dag/..", "dag/.", "/task", "a/b/c"])
def test_an_airflow_task_leads_to_a_dag_and_nowhere_else(address: str, task: str) -> None:
    environ = {"WATERSHED_AIRFLOW_URL": address, "WATERSHED_AIRFLOW_CREDENTIALS": "env:T", "T": "token"}
    heard = AirflowHook(task, 1.0, environ, time.monotonic, time.sleep).call(ASKED)
    assert heard.word == "no"
    assert "airflow_task" in heard.text
