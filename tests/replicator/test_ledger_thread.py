"""The ledger thread goes on after whatever fails in it, and tells that something did."""

from __future__ import annotations

import threading

from watershed.replicator.ledger.ledger_thread import LedgerThread


class Writer:
    """Its next polls fail as often as `failing` says."""

    def __init__(self, failing: int = 0) -> None:
        self.failing, self.waiting = failing, 0

    def poll(self, timeout: float) -> None:
        if self.failing:
            self.failing -= 1
            raise RuntimeError("an on_done failed")
        threading.Event().wait(min(timeout, 0.001))


def _ran(thread: LedgerThread) -> bool:
    done = threading.Event()
    thread.later(done.set)
    return done.wait(60)


def test_a_poll_that_fails_is_told_once_and_the_thread_goes_on():
    thread = LedgerThread(Writer(failing=2))
    thread.start()
    assert _ran(thread)
    assert thread.is_alive()
    assert thread.failure() == "RuntimeError: an on_done failed"
    assert thread.failure() == ""
    thread.end(20)
    assert not thread.is_alive()


def test_work_that_fails_does_not_keep_the_next_from_being_done():
    thread = LedgerThread(Writer())

    def fails() -> None:
        raise ValueError("gone wrong")

    thread.later(fails)
    thread.start()
    assert _ran(thread)
    assert thread.is_alive()
    assert thread.failure() == "ValueError: gone wrong"
    thread.end(20)
