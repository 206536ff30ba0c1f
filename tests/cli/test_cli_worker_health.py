"""What a worker with `--transforms` tells of its health while its Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.exported import ask_health
from watershed.cli import worker as worker_command
from watershed.lab.free_ports import find_free_ports
from watershed.spark.transform import transform_session


def test_it_is_alive_and_not_ready_until_spark_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    port, asked = find_free_ports(1)[0], []

    @contextmanager
    def start_slowly(_plan: object, target: str, *, supervised: bool) -> Iterator[str]:
        asked.extend([ask_health(port, "live"), ask_health(port, "ready"), (target, supervised)])
        yield "the engine"

    monkeypatch.setattr(transform_session, "open_transform_engine", start_slowly)
    with worker_command._open_engine(SimpleNamespace(), "cloud", None, ("127.0.0.1", port)) as engine:
        assert engine == "the engine"
        with pytest.raises(OSError, match="refused"):
            ask_health(port, "live")  # the worker's own endpoint takes the address now
    (live, told), (ready, _), began = asked
    assert (live, ready, began) == (200, 503, ("cloud", False))
    assert (told["live"], told["ready"], told["why"]) == (True, False, "Spark has been starting for 0 s")


def test_a_spark_that_never_starts_is_not_alive_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(worker_command, "time", SimpleNamespace(monotonic=lambda: clock.now))
    read = worker_command.build_start_health()
    clock.now += 300
    assert (read().is_live, read().is_ready) == (True, False)
    clock.now += 1
    assert not read().is_live


def test_without_an_address_nothing_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        transform_session, "open_transform_engine", lambda *_, **__: contextmanager(lambda: iter([tmp_path]))()
    )
    with worker_command._open_engine(SimpleNamespace(), "cloud", 3, None) as engine:
        assert engine == tmp_path
