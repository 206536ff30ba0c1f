"""The workers of a fleet as Spark jobs: a job of one task for each, so that one may come or go while others work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from watershed.replicator.worker.worker_host import WorkerHost, WorkerObservation
from watershed.spark.cluster_cores import FleetCoreLimit, describe_fleet_room
from watershed.spark.errors import SparkError
from watershed.spark.fleet_connection import FleetDriver

if TYPE_CHECKING:
    from pyspark import SparkContext

_NEAR_S = 3.0  # a fleet without a core and without a worker waits so long before one runs beside its driver
_STARVED_S = 20.0  # the same where others than fleets have the cores: they may be about to end, or to give one back
_UNKNOWN_S = 10.0  # a driver that registers is in the master's list at once
_YIELD_S = 20.0  # a fleet that holds too many cores for so long gives them back

FleetTask = Callable[[int | None, int, int, Iterator[int]], Iterator[str]]
"""One task: epoch, place, the partition's number and its rows; how the worker ended, "" for well."""


@dataclass(slots=True)
class SparkJobHost:
    """Starts and ends the jobs of one SparkContext.

    Without `surge`: a job that replaces another begins when the other has ended, because a core may not be free.

    limit: how many cores the fleet may hold; None where nobody counts. Workers beyond wait; so do those that the limit
    does not leave any more (never the last one). near: hosts processes beside the driver. Where the fleet gets no core
    at all, one worker runs there, so that a fleet on a full cluster copies.
    """

    context: SparkContext
    driver: FleetDriver
    task: FleetTask
    surge: bool = False
    limit: FleetCoreLimit | None = None
    near: WorkerHost | None = None
    say: Callable[[str], None] = lambda _text: None
    spark_waits: str = ""  # what `spark.resource_wait` says of jobs that were submitted
    engine: Literal["spark", "process"] = "spark"
    hosts_whole_fleet: bool = False
    _ended: dict[int, str | None] = field(default_factory=dict)  # place → None while its job runs, or how it ended
    _epochs: dict[int, int | None] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)  # places without a job
    _told: set[int] = field(default_factory=set)  # to end
    _yielding: set[int] = field(default_factory=set)  # whose worker ends, to wait
    _near: set[int] = field(default_factory=set)
    _moving: set[int] = field(default_factory=set)  # whose job is taken back, to run near
    _held_back: str = ""
    _surplus_since: float | None = None
    _stands_since: float | None = None
    _unknown_since: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def note(self) -> str:
        """What keeps it from starting workers, and how many run beside the driver; "" for nothing."""
        return "; ".join(each for each in (self._held_back, self.spark_waits) if each)

    def start(self, place: int, epoch: int | None) -> None:
        """Submit a job as soon as the limit allows; its task waits for a core if there is none."""
        self._epochs[place] = epoch
        self._waiting.add(place)
        self._told.discard(place)
        self._admit()

    def end(self, place: int) -> None:
        """Its worker hands over and ends. A job whose task has not begun is taken back."""
        if place in self._near:
            assert self.near is not None
            self.near.end(place)
            return
        self._told.add(place)
        self._yielding.discard(place)
        self._moving.discard(place)
        if place in self._waiting:
            self._waiting.discard(place)
            with self._lock:
                self._ended[place] = ""
        elif not self.driver.close_place(place):
            self._cancel(place)

    def kill(self, place: int) -> None:
        """Spark kills its task; one whose worker was told to end has ended itself before (`spark.fleet_connection`)."""
        if place in self._near:
            assert self.near is not None
            self.near.kill(place)
        else:
            self._cancel(place)

    def observe(self) -> Mapping[int, WorkerObservation]:
        """Every job; those that have ended are forgotten. Raises SparkError when the master does not know this
        application, while a worker waits for a core: it would wait for ever."""
        self._admit()
        working = self.driver.list_working()
        self._require_known(any(place not in working for place in self._list_jobs()))
        found = {place: WorkerObservation(waits=True) for place in self._waiting}
        with self._lock:
            for place, ended in list(self._ended.items()):
                name = str(working[place]["id"]) if place in working else ""
                if ended is None:
                    found[place] = WorkerObservation(name)
                    continue
                del self._ended[place]
                if place in self._yielding:
                    self._yielding.discard(place)
                    self._waiting.add(place)
                    found[place] = WorkerObservation(waits=True)
                    continue
                found[place] = WorkerObservation(name, ended or "well", failed=bool(ended))
        for place in self._moving & self._waiting:
            self._run_near(place)
        self._moving -= self._near
        if self.near is not None:
            near = self.near.observe()
            self._near -= {place for place, seen in near.items() if seen.ended is not None}
            found |= near
        return found

    def _admit(self) -> None:
        """Submit the jobs that the limit allows; have workers end that it does not allow any more."""
        limit = None if self.limit is None else self.limit.find()
        running = self._list_jobs()
        for place in sorted(self._waiting):
            if limit is not None and len(running) >= limit:
                break
            self._submit(place)
            running.append(place)
        self._start_near(running, limit)
        share = None if self.limit is None else self.limit.share
        if share is not None:
            self._yield_surplus(running, share)
        self._note_limit()

    def _start_near(self, running: list[int], limit: int | None) -> None:
        """One worker beside the driver, where the fleet may have no core, or gets none. Not at once: the master may
        still count what a driver before us had."""
        full = limit == 0 and not running and bool(self._waiting)
        starved = bool(running) and self.limit is not None and self.limit.is_starved and not self.driver.list_working()
        if self.near is None or self._near or self._moving or not (full or starved):
            self._stands_since = None
            return
        now = time.monotonic()
        self._stands_since = self._stands_since or now
        if now - self._stands_since < (_NEAR_S if full else _STARVED_S):
            return
        self._stands_since = None
        if full:
            self._run_near(min(self._waiting))
            return
        able = [place for place in running if place not in self._told]
        if able:  # its job would wait on; `observe` starts it when the job has ended
            place = min(able)
            self._moving.add(place)
            self._take_back(place)

    def _run_near(self, place: int) -> None:
        assert self.near is not None
        self._waiting.discard(place)
        self._near.add(place)
        self.near.start(place, self._epochs[place] or 0)

    def _take_back(self, place: int) -> None:
        """End its job, for the place to wait."""
        self._yielding.add(place)
        if not self.driver.close_place(place):
            self._cancel(place)

    def _submit(self, place: int) -> None:
        self._waiting.discard(place)
        self.driver.open_place(place)
        with self._lock:
            self._ended[place] = None
        threading.Thread(target=self._run, args=(place, self._epochs[place]), name=f"job-{place}", daemon=True).start()

    def _yield_surplus(self, running: list[int], share: int) -> None:
        """Give cores back that are not ours any more. Not at once: a machine or a master that is away for a moment
        makes the cluster look small. Jobs that have no core yet go first."""
        able = [place for place in running if place not in self._told]
        surplus = len(able) - max(share, 1)
        if surplus <= 0:
            self._surplus_since = None
            return
        now = time.monotonic()
        self._surplus_since = self._surplus_since or now
        if now - self._surplus_since < _YIELD_S:
            return
        self._surplus_since = None
        working = self.driver.list_working()
        for place in sorted(able, key=lambda each: (each not in working, each))[-surplus:]:
            self._take_back(place)

    def _require_known(self, waits: bool) -> None:
        """A master that was restarted without its memory knows no application of before. Nor does one that took two
        registrations of a driver whose first answer came late: it schedules the first, the driver holds the second."""
        cores = None if self.limit is None else self.limit.known
        if self.limit is None or cores is None or not waits or cores.find(self.limit.app_id) is not None:
            self._unknown_since = None
            return
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        if now - self._unknown_since > _UNKNOWN_S:
            raise SparkError(
                f"the master {cores.master} does not know this application ({self.limit.app_id}) any more, and gives "
                "it no cores. It has to be started again, which a supervisor does by itself"
            )

    def _note_limit(self) -> None:
        cores = None if self.limit is None else self.limit.known
        text = ""
        if self.limit is not None and cores is not None:
            text = describe_fleet_room(cores, len(self._waiting), len(self._near), self.limit.left)
        if text not in ("", self._held_back):
            self.say(text)
        self._held_back = text

    def _list_jobs(self) -> list[int]:
        """Places whose job runs, and is to go on."""
        with self._lock:
            return [place for place, ended in self._ended.items() if ended is None and place not in self._yielding]

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
