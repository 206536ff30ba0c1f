"""The workers of a fleet as Spark jobs: a job of one task for each, so that one may come or go while others work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from replicator.worker.fleet_supervisor import WorkerObservation
from spark.fleet_connection import FleetDriver

if TYPE_CHECKING:
    from pyspark import SparkContext

FleetTask = Callable[[int | None, int, int, Iterator[int]], Iterator[str]]
"""One task: epoch, place, the partition's number and its rows; how the worker ended, "" for well."""


@dataclass(slots=True)
class SparkJobHost:
    """Starts and ends the jobs of one SparkContext.

    Without `surge`: a job that replaces another begins when the other has ended, because a core may not be free.
    """

    context: SparkContext
    driver: FleetDriver
    task: FleetTask
    surge: bool = False
    engine: Literal["spark", "process"] = "spark"
    hosts_whole_fleet: bool = False
    _ended: dict[int, str | None] = field(default_factory=dict)  # place → None while its job runs, or how it ended
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, place: int, epoch: int | None) -> None:
        """Submit a job; its task waits for a core if there is none."""
        self.driver.open_place(place)
        with self._lock:
            self._ended[place] = None
        threading.Thread(target=self._run, args=(place, epoch), name=f"job-{place}", daemon=True).start()

    def end(self, place: int) -> None:
        """Its worker hands over and ends. A job whose task has not begun is taken back."""
        if not self.driver.close_place(place):
            self._cancel(place)

    def kill(self, place: int) -> None:
        """Spark kills its task; one whose worker was told to end has ended itself before (`spark.fleet_connection`)."""
        self._cancel(place)

    def observe(self) -> Mapping[int, WorkerObservation]:
        """Every job; those that have ended are forgotten."""
        working, found = self.driver.list_working(), {}
        with self._lock:
            for place, ended in list(self._ended.items()):
                name = str(working[place]["id"]) if place in working else ""
                if ended is None:
                    found[place] = WorkerObservation(name)
                    continue
                del self._ended[place]
                found[place] = WorkerObservation(name, ended or "well", failed=bool(ended))
        return found

    def _run(self, place: int, epoch: int | None) -> None:
        try:
            self.context.addJobTag(_tag(place))
            task = partial(self.task, epoch, place)
            [ended] = self.context.parallelize([place], 1).mapPartitionsWithIndex(task).collect()
        except Exception as error:  # noqa: BLE001  Spark's own end of the job; the supervisor starts it again
            ended = f"the Spark job ended: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        with self._lock:
            self._ended[place] = str(ended)

    def _cancel(self, place: int) -> None:
        from py4j.protocol import Py4JError

        with contextlib.suppress(Py4JError, OSError):
            self.context.cancelJobsWithTag(_tag(place))


def _tag(place: int) -> str:
    return f"watershed-place-{place}"
