"""Answers over HTTP that are nested deep, or hold other types than they should, are errors with words."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clusters import tokens
from clusters.errors import ClusterError
from clusters.registry.client import RegistryClient
from clusters.registry.settings import RegistrySettings
from clusters.settings import ConnectionSettings, OAuth
from cutover.hooks.airflow import AirflowHook
from cutover.hooks.call import HookCall
from cutover.hooks.http import HttpHook

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
    threading.Thread(target=server.serve_forever, daemon=True).start()
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
        tokens.token(
            ConnectionSettings(
                "a", ("127.0.0.1:1",), "x", None, "SASL_SSL", "OAUTHBEARER", "u", "p", oauth=OAuth(address)
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
