"""A total deadline for work that only has a timeout for each read: a peer that sends a byte now and then ends none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def start_work(work: Callable[[], _T]) -> Future[_T]:
    """Do work in a thread of its own, which ends with this process. Whatever it raises is in the result, SystemExit
    too."""
    result: Future[_T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 (whatever it is, whoever waits is told)
            result.set_exception(error)

    threading.Thread(target=run, name="within", daemon=True).start()
    return result


def run_with_deadline(seconds: float, work: Callable[[], _T]) -> _T:
    """Do work in a thread of its own. Raises what it raises, and TimeoutError when it is not done in time; what is
    not done then is left behind and ends with this process."""
    return start_work(work).result(seconds)
