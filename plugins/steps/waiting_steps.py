"""Steps that wait, done in a separate process for the triggerer (`plugins.shared_client_processes`).

`finish_waiting_steps` is the triggerer's end; below it is what runs in the process. If the process ends early, the
task goes back to a worker, which finds in the journal what is left to do.
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any

from airflow.sdk.exceptions import AirflowException

from watershed.clusters.crash_isolated_client import ClientProcessEnded
from watershed.clusters.errors import ClusterError
from watershed.plugins.shared_client_processes import name_topology_clusters, shared_client_processes
from watershed.plugins.steps.step_driver import (
    ApprovalNeeded,
    ConfirmationNeeded,
    ProofNeeded,
    StandbyNeeded,
    StepOrder,
    StillWaiting,
    WaitBudget,
    defer_approval,
    run_steps,
)
from watershed.topology.text_escaping import escape_controls

_LOOK_S = 2.0
NEEDS_WORKER = "needs a worker"  # so begins the end of a wait with which the triggerer could not go on
_HERE = f"{__name__}:"


def finish_waiting_steps(order: StepOrder, log: Any, stop: threading.Event) -> str:
    """Waits for the steps and returns how they ended. stop: set it when the trigger was cancelled."""
    topology = order.dag.partition("__")[2] or order.dag
    try:
        with shared_client_processes().using(topology, name_topology_clusters(topology)) as child:
            number = child.call(f"{_HERE}begin_waiting_steps", {"order": order.to_json()})
            shared_client_processes().hear(topology, child)
            while True:
                told = child.call(f"{_HERE}poll_waiting_steps", {"number": number, "stop": stop.is_set()})
                for line in told["lines"]:
                    log.info("%s", escape_controls(line))
                if told["ended"] is not None:
                    return str(told["ended"])
    except (ClientProcessEnded, ClusterError) as problem:
        return f"{NEEDS_WORKER}: {problem}"


# -- in that process --------------------------------------------------------------------------------------------


class _Running(logging.Handler):
    """A thread that does the steps, and the lines it has logged since the last poll."""

    def __init__(self, number: int, order: StepOrder) -> None:
        super().__init__()
        self.patience, self.ended = WaitBudget(None), ""
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
            result = run_steps(self._order, self._log, defer_approval, self.patience)
            self.ended = f"{result.state} {result.reason}".strip()
        except (ProofNeeded, StandbyNeeded, ApprovalNeeded, ConfirmationNeeded) as needed:
            self.ended = f"needs {needed}"
        except StillWaiting:
            self.ended = "stopped: nobody waits for it here any more"
        except AirflowException as problem:  # the task meets it again and reports it
            self.ended = f"{NEEDS_WORKER}: {problem}"
        except Exception as error:  # noqa: BLE001 (the same: in the task it has a traceback)
            self.ended = f"{NEEDS_WORKER}: {error!r}"
        finally:
            self.over.set()


_running: dict[int, _Running] = {}
_numbers = itertools.count()


def begin_waiting_steps(order: dict[str, Any]) -> int:
    """Starts the steps in a thread; returns the number that `poll_waiting_steps` takes."""
    number = next(_numbers)
    _running[number] = _Running(number, StepOrder.of_json(order))
    return number


def poll_waiting_steps(number: int, stop: bool) -> dict[str, Any]:
    """Returns after at most _LOOK_S: the lines logged since the last poll, and how the steps ended (None: not yet)."""
    running = _running[number]
    if stop:
        running.patience.stop.set()
    over = running.over.wait(_LOOK_S)
    if over:
        del _running[number]
    return {"lines": running.taken_lines(), "ended": running.ended if over else None}
