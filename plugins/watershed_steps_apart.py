"""Steps that wait, done in a process apart for the triggerer (`plugins.watershed_apart`).

`finish_apart` is the triggerer's end; below it is what runs in the process. Should that end, the task goes back to a
worker, which finds in the journal what is left to do.
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any

from airflow.sdk.exceptions import AirflowException

from clusters.apart import ProcessEnded
from clusters.errors import ClusterError
from plugins.watershed_apart import asking, name_of
from plugins.watershed_steps import (
    ApprovalNeeded,
    Order,
    Patience,
    ProofNeeded,
    StandbyNeeded,
    StillWaiting,
    ask_later,
    run_steps,
)
from topology.quoting import visible

_LOOK_S = 2.0
_HERE = f"{__name__}:"


def finish_apart(order: Order, log: Any, stop: threading.Event) -> str:
    """How it ended. stop: nobody waits for it any more."""
    topology = order.dag.partition("__")[2] or order.dag
    try:
        with asking().using(topology, name_of(topology)) as child:
            number = child.call(f"{_HERE}begin", {"order": order.to_json()})
            asking().hear(topology, child)
            while True:
                told = child.call(f"{_HERE}look", {"number": number, "stop": stop.is_set()})
                for line in told["lines"]:
                    log.info("%s", visible(line))
                if told["ended"] is not None:
                    return str(told["ended"])
    except (ProcessEnded, ClusterError) as problem:
        return f"needs a worker: {problem}"


# -- in the process apart ---------------------------------------------------------------------------------------


class _Running(logging.Handler):
    """A thread that does the steps, and what it has said since somebody looked."""

    def __init__(self, number: int, order: Order) -> None:
        super().__init__()
        self.patience, self.ended = Patience(None), ""
        self._order, self._lines = order, list[str]()
        self._log = logging.Logger(f"watershed.steps.{number}", logging.INFO)
        self._log.addHandler(self)
        self.over = threading.Event()
        threading.Thread(target=self._run, name=self._log.name, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def taken_lines(self) -> list[str]:
        taken = self._lines[:]
        del self._lines[: len(taken)]
        return taken

    def _run(self) -> None:
        try:
            result = run_steps(self._order, self._log, ask_later, self.patience.sleep)
            self.ended = f"{result.state} {result.reason}".strip()
        except (ProofNeeded, StandbyNeeded, ApprovalNeeded) as needed:
            self.ended = f"needs {needed}"
        except StillWaiting:
            self.ended = "stopped: nobody waits for it here any more"
        except AirflowException as problem:  # the task looks for itself, and says it
            self.ended = f"needs a worker: {problem}"
        except Exception as error:  # noqa: BLE001 (the same: in the task it has a traceback)
            self.ended = f"needs a worker: {error!r}"
        finally:
            self.over.set()


_running: dict[int, _Running] = {}
_numbers = itertools.count()


def begin(order: dict[str, Any]) -> int:
    number = next(_numbers)
    _running[number] = _Running(number, Order.of_json(order))
    return number


def look(number: int, stop: bool) -> dict[str, Any]:
    """After at most LOOK_S: the lines that were said since the last look, and how it ended, None while it has not."""
    running = _running[number]
    if stop:
        running.patience.stop.set()
    over = running.over.wait(_LOOK_S)
    if over:
        del _running[number]
    return {"lines": running.taken_lines(), "ended": running.ended if over else None}
