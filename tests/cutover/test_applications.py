"""Applications are told over HTTP, exactly at the declared address."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
    ApplicationVerb,
)
from watershed.cutover.live.applications.http_application import HttpApplication, parse_application_state
from watershed.lab.certificates import CertificateAuthority, write_secret_file
from watershed.topology.application_controls import HttpAuthentication
from watershed.topology.secret_ref import SecretRef


def order(verb: ApplicationVerb, name: str = "billing") -> ApplicationOrder:
    side: Any = "source" if verb == "stop" else "target"
    alias = "onprem" if verb == "stop" else "cloud"
    return ApplicationOrder(verb, name, "consumer", side, alias, ("b1:9092", "b2:9092"), f"shop/r1/all/{verb}")


class Switch(BaseHTTPRequestHandler):
    state: dict[str, Any]
    calls: list[tuple[str, str, str]]
    heads: list[dict[str, str]]
    answer: tuple[int, bytes] | None = None

    def do_GET(self) -> None:
        self._reply("GET")

    def do_POST(self) -> None:
        self._reply("POST")

    def _reply(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        type(self).calls.append((method, self.path, body))
        type(self).heads.append({name.lower(): value for name, value in self.headers.items()})
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
def switch() -> Iterator[tuple[type[Switch], HttpApplication]]:
    handler = type(
        "One", (Switch,), {"state": {"state": "running", "cluster": "onprem"}, "calls": [], "heads": [], "answer": None}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield (
        handler,
        HttpApplication("billing", f"http://127.0.0.1:{server.server_port}", 5),
    )
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_look_stop_start(switch: tuple[type[Switch], HttpApplication]) -> None:
    handler, told = switch
    assert told.read() == ApplicationState("running", "onprem", "endpoint")
    assert told.tell(order("stop")).state == "stopped"
    assert told.tell(order("start")) == ApplicationState("running", "cloud", "endpoint")
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
    switch: tuple[type[Switch], HttpApplication], answer: tuple[int, bytes], words: str, transient: bool
) -> None:
    handler, told = switch
    handler.answer = answer
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        told.read()
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
            HttpApplication("billing", url, 0.5).read()
        assert failed.value.transient
        ended.set()
        thread.join(5)


def test_nobody_there() -> None:
    told = HttpApplication("billing", "http://127.0.0.1:9", 2)
    with pytest.raises(
        ApplicationControlFailed, match=r"does not answer at http://127.0.0.1:9.*billing\.http"
    ) as failed:
        told.tell(order("stop"))
    assert failed.value.transient


def test_only_http_addresses_are_called() -> None:
    with pytest.raises(ApplicationControlFailed, match="not an http address"):
        HttpApplication("billing", "file:///etc/passwd").read()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:port", "http://[::1", "http://127.0.0.1:9/a b", "http://bill\u00efng..x:9", "http://"]
)
def test_a_malformed_address_is_named_and_not_asked_again(url: str) -> None:
    with pytest.raises(ApplicationControlFailed, match=r"migration\.applications\.billing\.http") as failed:
        HttpApplication("billing", url, 2).read()
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
    told = HttpApplication("billing", url, 1, environ={"WATERSHED_HOOK_HOSTS": hosts})
    with pytest.raises(ApplicationControlFailed, match=r"billing\.http") as failed:
        told.tell(order("stop"))
    assert ("WATERSHED_HOOK_HOSTS" not in str(failed.value)) is fine
    assert failed.value.transient is fine


@pytest.mark.parametrize("state", ['"<html>intranet</html>"', '{"a": 1}', "7", '"' + "x" * 200 + '"'])
def test_a_state_that_is_none_is_not_repeated(state: str) -> None:
    with pytest.raises(ApplicationControlFailed, match="in no known state") as failed:
        parse_application_state("billing", {"state": json.loads(state)}, "endpoint")
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
            HttpApplication("billing", url, 5).read()
        assert not failed.value.transient
        thread.join(5)


def test_an_application_may_take_its_time(switch: tuple[type[Switch], HttpApplication]) -> None:
    handler, told = switch
    handler.answer = (200, b'{"state": "stopping", "cluster": "onprem"}')
    assert told.tell(order("stop")).state == "stopping"
    handler.answer = None
    assert told.follow(order("stop")).state == "stopped"
    assert handler.calls[-1][0] == "GET"


SECRETS = {"WATERSHED_HOOK_HOSTS": "loopback", "WATERSHED_SECRET_SWITCH": "s3cret"}
HERE = SecretRef("env", "WATERSHED_SECRET_SWITCH")


def test_a_token_is_sent_and_never_told(switch: tuple[type[Switch], HttpApplication]) -> None:
    handler, told = switch
    proven = replace(told, authentication=HttpAuthentication(bearer=HERE), environ=SECRETS)
    assert proven.read().state == "running"
    assert handler.heads[-1]["authorization"] == "Bearer s3cret"
    handler.answer = (401, b"")
    with pytest.raises(ApplicationControlFailed, match="does not accept our `authentication`") as failed:
        proven.read()
    assert "s3cret" not in str(failed.value)
    with pytest.raises(ApplicationControlFailed, match="export WATERSHED_SECRET_SWITCH") as failed:
        replace(proven, environ={"WATERSHED_HOOK_HOSTS": "loopback"}).read()
    assert not failed.value.transient


@pytest.mark.parametrize("token", ["s3cret\nX-Other: 1", "s3cret\u2013more", "s3cret\x00"])
def test_a_token_that_no_header_can_carry_is_not_quoted(
    switch: tuple[type[Switch], HttpApplication], token: str
) -> None:
    handler, told = switch
    proof = HttpAuthentication(bearer=HERE)
    broken = replace(told, authentication=proof, environ=SECRETS | {HERE.name: token})
    with pytest.raises(ApplicationControlFailed, match=r"billing\.authentication\.bearer has line breaks") as failed:
        broken.read()
    assert "s3cret" not in str(failed.value)
    assert not failed.value.transient
    assert handler.calls == []


def test_a_signature_covers_time_method_path_and_body(switch: tuple[type[Switch], HttpApplication]) -> None:
    """As docs/applications.md tells to check it."""
    handler, told = switch
    page = Path(__file__).parents[2] / "docs" / "applications.md"
    [recipe] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(recipe, names)
    now = time.time()
    signed = replace(told, authentication=HttpAuthentication(hmac=HERE), environ=SECRETS, wall=lambda: now)
    signed.tell(order("start"))
    method, path, body = handler.calls[-1]
    head = {key.title(): value for key, value in handler.heads[-1].items()}
    assert head["X-Watershed-Timestamp"] == str(int(now))
    assert head["Idempotency-Key"] == "shop/r1/all/start"
    genuine = names["genuine"]
    assert genuine(method, path, head, body.encode(), "s3cret")
    for other in (("GET", path, body), (method, path.replace("start", "stop"), body), (method, path, body + " ")):
        assert not genuine(*other[:2], head, other[2].encode(), "s3cret")
    assert not genuine(method, path, head, body.encode(), "another")
    assert not genuine(method, path, head | {"X-Watershed-Timestamp": str(int(now) - 1)}, body.encode(), "s3cret")


def test_a_certificate_is_shown_to_a_switch_that_asks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSHED_ALLOW_FILES", str(tmp_path))
    authority = CertificateAuthority("ours")
    server, client = authority.issue("switch", ("127.0.0.1",)), authority.issue("watershed")
    files = {
        name: SecretRef("file", str(write_secret_file(tmp_path / name, text)))
        for name, text in {
            "ca": authority.chain, "certificate": client.chain, "key": client.key_pem(),
            "locked": client.key_pem("pass"), "server": server.pem,
        }.items()
    }  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["server"].name)
    tls.load_verify_locations(files["ca"].name)
    tls.verify_mode = ssl.CERT_REQUIRED
    handler = type("One", (Switch,), {"state": {"state": "running"}, "calls": [], "heads": [], "answer": None})
    there = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    there.socket = tls.wrap_socket(there.socket, server_side=True)
    thread = threading.Thread(target=there.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    url, own = f"https://127.0.0.1:{there.server_port}", {"certificate": files["certificate"], "key": files["key"]}
    try:
        assert HttpApplication("billing", url, 5, HttpAuthentication(**own, ca=files["ca"])).read().state == "running"
        with pytest.raises(ApplicationControlFailed, match="does not answer"):  # not trusted without its authority
            HttpApplication("billing", url, 5, HttpAuthentication(**own)).read()
        locked = HttpAuthentication(certificate=files["certificate"], key=files["locked"])
        with pytest.raises(ApplicationControlFailed, match="the key not encrypted") as failed:
            HttpApplication("billing", url, 5, locked).read()
        assert not failed.value.transient
    finally:
        there.shutdown()
        there.server_close()
        thread.join(5)
