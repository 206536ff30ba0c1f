"""Servers of the documented shapes, on loopback: what Prometheus, Confluent's Metrics API and a JMX exporter answer."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Asked:
    """One request, as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, bytes, dict[str, str]]


@dataclass
class MetricsServer:
    """answer: what it says to a request. asked: all requests."""

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve_metrics(answer: Callable[[Asked], Answer]) -> Iterator[MetricsServer]:
    server = MetricsServer(answer)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, self.rfile.read(length))
            server.asked.append(asked)
            status, body, more = server.answer(asked)
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_args: object) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listener.server_port}"
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
