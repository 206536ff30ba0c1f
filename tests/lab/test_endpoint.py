"""The control endpoint of a sample application obeys programs of this machine, and no page in a browser."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from watershed.lab.control_endpoint import ClientAddress, ClientSwitch, _handler


class Waiting:
    """An application that runs until it is stopped."""

    name, role = "orders", "producer"

    def run(self, place: ClientAddress, stopping: threading.Event) -> None:
        stopping.wait()

    def counts(self) -> dict[str, int]:
        return {}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    switch = ClientSwitch(Waiting(), tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(switch, "orders"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    switch.start(ClientAddress("onprem", "127.0.0.1:1"))
    yield server.server_port
    server.shutdown()
    server.server_close()
    switch.stop(remember=False)
    thread.join(5)


def ask(port: int, method: str, path: str, **headers: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, b"{}" if method == "POST" else None, sent)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "rebound.example.com:80"},
        {"Host": "127.0.0.1.example.com:80"},
    ],
    ids=str,
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/stop"), ("POST", "/start"), ("GET", "/")])
def test_a_page_is_refused_and_changes_nothing(port: int, method: str, path: str, headers: dict[str, str]) -> None:
    status, told = ask(port, method, path, **headers)
    assert status == 403
    assert list(told) == ["error"]
    assert ask(port, "GET", "/")[1]["state"] == "running"


def test_a_program_is_obeyed(port: int) -> None:
    assert ask(port, "POST", "/stop", Host=f"localhost:{port}")[0] == 200
    assert ask(port, "GET", "/")[1]["state"] == "stopped"


def test_in_a_network_of_containers_it_is_called_by_its_name(port: int) -> None:
    assert ask(port, "GET", "/", Host="orders:8090")[0] == 200
