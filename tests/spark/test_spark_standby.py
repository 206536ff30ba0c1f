"""What an application does that has proven and stays, on a pipe: no Spark here (tests/cli/test_cli_proving.py)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from io import FileIO

import pytest

from watershed.spark.standby import serve_proof_requests


class Orders:
    """Both ends of the standard input of an application that stays, and what it did."""

    def __init__(self) -> None:
        read, self.write = os.pipe()
        self.read = FileIO(read)
        self.did: list[object] = []
        self.pulsed = threading.Event()

    def order(self, text: bytes) -> None:
        os.write(self.write, text)

    def end(self) -> None:
        os.close(self.write)

    def stay(self, bound: float = 60.0, every: float = 60.0) -> None:
        serve_proof_requests(self.read, self._prove, self._pulse, bound, every)

    def _prove(self, arguments: list[str]) -> float | None:
        self.did.append(arguments)
        return float(arguments[1]) if arguments[0] == "--stay" else None

    def _pulse(self) -> None:
        self.did.append("pulse")
        self.pulsed.set()


@pytest.fixture
def orders() -> Iterator[Orders]:
    there = Orders()
    yield there
    there.read.close()


def test_it_proves_what_is_ordered_and_ends_with_whoever_orders(orders: Orders) -> None:
    orders.order(b'["--out", "a b"]\n["--final"]\n')
    orders.end()
    orders.stay()
    assert orders.did == ["pulse", ["--out", "a b"], ["--final"]]


def test_a_proof_may_ask_it_to_stay_for_longer(orders: Orders) -> None:
    """It waited for an approval; now it stands by until the tail is proven."""
    orders.order(b'["--stay", "60"]\n["--final", "a"]\n')
    threading.Timer(0.5, orders.end).start()
    orders.stay(bound=0.2)
    assert orders.did == ["pulse", ["--stay", "60"], ["--final", "a"]]


def test_half_an_order_is_none(orders: Orders) -> None:
    orders.order(b'["--final"')
    orders.end()
    orders.stay()
    assert orders.did == ["pulse"]


def test_it_keeps_warm_and_ends_by_itself(orders: Orders) -> None:
    orders.stay(bound=2, every=0.02)
    assert orders.did.count("pulse") > 2
    orders.end()


def test_it_waits_for_orders_between_two_pulses(orders: Orders) -> None:
    thread = threading.Thread(target=orders.stay)
    thread.start()
    assert orders.pulsed.wait(60)
    orders.order(b'["--final"]\n')
    orders.end()
    thread.join(60)
    assert orders.did == ["pulse", ["--final"]]
