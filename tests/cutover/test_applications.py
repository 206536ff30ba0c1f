"""Applications are told over HTTP, exactly at the declared address; where none is declared a person answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cutover.live.application_control import ApplicationControlFailed, ApplicationEndpoints, ApplicationState, _state


class Switch(BaseHTTPRequestHandler):
    state: dict[str, Any]
    calls: list[tuple[str, str, str]]
    answer: tuple[int, bytes] | None = None

    def do_GET(self) -> None:
        self._reply("GET")

    def do_POST(self) -> None:
        self._reply("POST")

    def _reply(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        type(self).calls.append((method, self.path, body))
        if self.path == "/stop":
            type(self).state["state"] = "stopped"
        elif self.path == "/start":
            type(self).state |= {"state": "running", "cluster": json.loads(body)["cluster"]}
        code, content = type(self).answer or (200, json.dumps(type(self).state).encode())
        self.send_response(code)
        if code == 302:
            self.send_header("location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def switch() -> Iterator[tuple[type[Switch], ApplicationEndpoints]]:
    handler = type("One", (Switch,), {"state": {"state": "running", "cluster": "onprem"}, "calls": [], "answer": None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield (
        handler,
        ApplicationEndpoints({"billing": f"http://127.0.0.1:{server.server_port}"}, lambda _q: False, timeout=5),
    )
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_look_stop_start(switch: tuple[type[Switch], ApplicationEndpoints]) -> None:
    handler, told = switch
    assert told.look("billing") == ApplicationState("running", "onprem", "endpoint")
    assert told.stop("billing", "consumer", "onprem").state == "stopped"
    assert told.start("billing", "consumer", "cloud", ["b1:9092", "b2:9092"]) == ApplicationState(
        "running", "cloud", "endpoint"
    )
    assert [call[:2] for call in handler.calls] == [("GET", "/"), ("POST", "/stop"), ("POST", "/start")]
    assert json.loads(handler.calls[-1][2]) == {"cluster": "cloud", "bootstrap": "b1:9092,b2:9092"}


@pytest.mark.parametrize(
    ("answer", "words", "transient"),
    [
        ((500, b'{"error": "broker away"}'), "answered 500: broker away", True),
        ((409, b'{"error": "runs elsewhere"}'), "answered 409: runs elsewhere", False),
        ((403, b"<p>inventory of the intranet</p>"), "answered 403$", False),
        ((200, b"[" * 100_000), "no JSON object", False),
        ((302, b""), "answered 302", False),
        ((200, b"<html>"), "no JSON object", False),
        ((200, b'{"state": "dancing"}'), "'dancing'", True),
    ],
)
def test_bad_answers(
    switch: tuple[type[Switch], ApplicationEndpoints], answer: tuple[int, bytes], words: str, transient: bool
) -> None:
    handler, told = switch
    handler.answer = answer
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        told.look("billing")
    assert failed.value.transient is transient


def test_an_answer_that_drips_is_given_up_in_time() -> None:
    """A byte now and then held a step for ever: each of them began the time anew."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
                while not ended.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ApplicationControlFailed, match=r"does not answer at .*no answer in 0\.5 s") as failed:
            ApplicationEndpoints({"billing": url}, None, timeout=0.5).look("billing")
        assert failed.value.transient
        ended.set()
        thread.join(5)


def test_nobody_there() -> None:
    told = ApplicationEndpoints({"billing": "http://127.0.0.1:9"}, lambda _q: True, timeout=2)
    with pytest.raises(
        ApplicationControlFailed, match=r"does not answer at http://127.0.0.1:9.*billing\.http"
    ) as failed:
        told.stop("billing", "consumer", "onprem")
    assert failed.value.transient


def test_only_http_addresses_are_called() -> None:
    with pytest.raises(ApplicationControlFailed, match="not an http address"):
        ApplicationEndpoints({"billing": "file:///etc/passwd"}, lambda _q: True).look("billing")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:port", "http://[::1", "http://127.0.0.1:9/a b", "http://bill\u00efng..x:9", "http://"]
)
def test_a_malformed_address_is_named_and_not_asked_again(url: str) -> None:
    with pytest.raises(ApplicationControlFailed, match=r"migration\.applications\.billing\.http") as failed:
        ApplicationEndpoints({"billing": url}, None, timeout=2).look("billing")
    assert not failed.value.transient


@pytest.mark.parametrize(
    ("url", "hosts", "fine"),
    [
        ("http://127.0.0.1:9", "", False),
        ("http://127.0.0.1:9", "127.0.0.1", False),
        ("http://127.0.0.1:9", "127.0.0.1:9", True),
        ("http://127.0.0.1:9", "loopback", True),
        ("http://[::1]:9", "loopback", True),
        ("http://169.254.169.254/latest?x=", "loopback", False),
        ("http://2130706433:9", "loopback", False),  # 127.0.0.1 for a resolver, and nobody's loopback here
        ("http://loopback:9", "loopback", False),
    ],
)
def test_only_hosts_that_the_operator_names_are_called(url: str, hosts: str, fine: bool) -> None:
    told = ApplicationEndpoints({"billing": url}, None, timeout=1, environ={"WATERSHED_HOOK_HOSTS": hosts})
    with pytest.raises(ApplicationControlFailed, match=r"billing\.http") as failed:
        told.stop("billing", "consumer", "onprem")
    assert ("WATERSHED_HOOK_HOSTS" not in str(failed.value)) is fine
    assert failed.value.transient is fine


@pytest.mark.parametrize("state", ['"<html>intranet</html>"', '{"a": 1}', "7", '"' + "x" * 200 + '"'])
def test_a_state_that_is_none_is_not_repeated(state: str) -> None:
    with pytest.raises(ApplicationControlFailed, match="in no known state") as failed:
        _state("billing", {"state": json.loads(state)})
    assert len(str(failed.value)) < 100


def test_something_else_than_http_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail\r\n\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ApplicationControlFailed, match=r"migration\.applications\.billing\.http") as failed:
            ApplicationEndpoints({"billing": url}, None, timeout=5).look("billing")
        assert not failed.value.transient
        thread.join(5)


def test_without_endpoint_and_person_nothing_is_stopped() -> None:
    told = ApplicationEndpoints({}, None)
    assert told.look("billing") == ApplicationState("unknown", None, "nobody")
    with pytest.raises(ApplicationControlFailed, match=r"nobody can be asked.*applications\.billing\.http") as failed:
        told.stop("billing", "consumer", "onprem")
    assert not failed.value.transient


def test_a_person_confirms_where_no_endpoint_is_declared() -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return len(asked) == 1

    told = ApplicationEndpoints({"billing": None}, confirm)
    assert told.look("billing").state == "unknown"
    assert told.stop("billing", "consumer", "onprem").by == "person"
    with pytest.raises(ApplicationControlFailed, match="not confirmed"):
        told.start("billing", "consumer", "cloud", ["b1:9092"])
    assert "Stop the consumer billing (at onprem)" in asked[0]
    assert "Start the consumer billing at cloud (b1:9092)" in asked[1]
