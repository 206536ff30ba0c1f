"""One address for Prometheus and for whoever asks whether a process is well: /metrics, /health/live, /health/ready."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from watershed.product_version import describe_product_version
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.worker.metrics_snapshot import Health

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

_Environ = dict[str, Any]


class MetricsUnavailable(ReplicatorError):
    """The metrics endpoint cannot be opened."""


class _SilentHandler(WSGIRequestHandler):
    """A line in the log for each scrape helps nobody."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _ServerOfSix(ThreadingWSGIServer):
    address_family = socket.AF_INET6


def serve_endpoint(
    collector: Collector, read_health: Callable[[], Health], address: str, port: int
) -> tuple[WSGIServer, Thread]:
    """Answer at http://address:port until the server is shut down. Port 0 takes a free one. Any path but those of
    health is answered with the metrics. A health that is not given is answered with 503 and the reason.

    Raises MetricsUnavailable when the address is taken or not ours.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    app = partial(_answer, make_wsgi_app(registry), read_health)
    kind = _ServerOfSix if ":" in address else ThreadingWSGIServer
    try:
        server = make_server(address, port, app, kind, handler_class=_SilentHandler)
    except OSError as error:
        raise MetricsUnavailable(
            f"metrics cannot be served at {address}:{port}: {error.strerror or error}; choose another address"
        ) from None
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return server, thread


class _NoMetrics(Collector):
    def collect(self) -> Iterable[Metric]:
        """Nothing: there is no worker yet."""
        return ()


@contextmanager
def serve_health_alone(read_health: Callable[[], Health], address: str, port: int) -> Iterator[None]:
    """Answer for a process that has no worker yet, until the end: whoever watches processes would otherwise start it
    again and again. Raises MetricsUnavailable."""
    server, thread = serve_endpoint(_NoMetrics(), read_health, address, port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(
    metrics: Callable[..., Iterable[bytes]], read_health: Callable[[], Health], environ: _Environ, start: StartResponse
) -> Iterable[bytes]:
    path = str(environ.get("PATH_INFO", ""))
    if not path.startswith("/health/"):
        return metrics(environ, start)
    health = read_health()
    asked = {"/health/live": health.is_live, "/health/ready": health.is_live and health.is_ready}
    if path not in asked:
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"there are /metrics, /health/live and /health/ready\n"]
    body = {
        "live": health.is_live,
        "ready": health.is_ready,
        "why": health.why,
        "version": describe_product_version(),
    }
    start("200 OK" if asked[path] else "503 Service Unavailable", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
