"""Says why Spark starts no task: a cluster that is full or too small waits in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from watershed.spark.cluster_cores import (
    BEGUN_PREFIX,
    WAITING_PREFIX,
    ClusterCores,
    describe_core_wait,
    describe_executor_start,
    has_room,
    read_cluster_cores,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_S = 2.0
_PATIENT_S = 20.0  # for executors to start, and where nothing is known of the cluster
_AGAIN_S = 120.0
_START_AGAIN = "Its master was restarted, or answered too late; end this application and start it again"
_WAITING = WAITING_PREFIX + "it has begun none of {tasks} tasks in {seconds:.0f} s. "
_UNKNOWN = "Is the cluster full, or has no worker what spark.executor.memory and spark.executor.cores ask for?"


@contextmanager
def warn_while_waiting(
    context: SparkContext,
    say: Callable[[str], None],
    read_cores: Callable[[], ClusterCores | None] | None = None,
    *,
    ask_again: Callable[[int], None] | None = None,
    look_s: float = _LOOK_S,
    patient_s: float = _PATIENT_S,
    again_s: float = _AGAIN_S,
) -> Iterator[None]:
    """Inside, calls `say` while no task of a job has begun: within seconds where the master says that we have no core
    (who has them, what to do), else after `patient_s`; then every `again_s`, and once more when a task has begun.

    read_cores: what the cluster's master says; by default its web page is asked. ask_again: called with the number of
    tasks that run or wait, each time that is said although the cluster has room: the master may have lost our request.
    """
    from py4j.protocol import Py4JError

    ended = threading.Event()
    waited = _Waiting(say, patient_s, again_s)

    def watch() -> None:
        passed = 0.0
        while not ended.wait(look_s):
            passed += look_s
            try:
                tasks, runs = _count_not_begun(context)
                if not tasks:
                    waited.end(passed)
                    continue
                app_id = str(context.applicationId)
                cores = read_cores() if read_cores is not None else read_cluster_cores(str(context.master))
            except (Py4JError, OSError):  # Java is gone, which the job itself tells
                return
            has_lost_us = waited.look(passed, tasks, cores, app_id, runs=runs)
            if has_lost_us and ask_again is not None:
                ask_again(_count_wanted(context))

    thread = threading.Thread(target=watch, name="cores", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5.0)


class _Waiting:
    """What was said of one wait, and when."""

    def __init__(self, say: Callable[[str], None], patient_s: float, again_s: float) -> None:
        self._say, self._patient_s, self._again_s = say, patient_s, again_s
        self._since: float | None = None
        self._due: float | None = None  # when it is said again; None before it was said

    def look(self, now: float, tasks: int, cores: ClusterCores | None, app_id: str, *, runs: bool = False) -> bool:
        """No task of a job has begun. now: seconds on any clock. runs: whether a task of another job runs. Returns
        whether it was said of an application that the cluster has room for, and that has nothing that could start."""
        self._since = now if self._since is None else self._since
        waited = now - self._since
        own = None if cores is None else cores.find(app_id)
        is_starting = own is not None and own.cores > 0 and not runs  # the cores that it has do nothing yet
        is_full = cores is not None and own is not None and not is_starting and not has_room(cores, own.memory_mb)
        is_starving = is_full and own is not None and own.cores == 0
        if (self._due is None and not is_starving and waited < self._patient_s) or (self._due or 0.0) > now:
            return False
        self._due = now + self._again_s
        if cores is not None and is_full:
            self._say(describe_core_wait(cores, app_id))
            return False
        if cores is not None and own is None:
            self._say(f"{WAITING_PREFIX}{cores.master} does not know this application ({app_id}). {_START_AGAIN}")
            return False
        why = describe_executor_start(cores, app_id) if cores is not None and is_starting else _UNKNOWN
        self._say(_WAITING.format(tasks=tasks, seconds=waited) + why)
        return not is_starting

    def end(self, now: float) -> None:
        """A task has begun, or there is none."""
        if self._due is not None and self._since is not None:
            self._say(f"{BEGUN_PREFIX}after {now - self._since:.0f} s")
        self._since = self._due = None


def ask_for_executors(context: SparkContext, count: int) -> None:
    """Tell the master once more how many executors the application wants, of which it gets no fewer by this.

    Spark tells it only when the number changes. A standalone master that was restarted does not know the number of
    before, and where it loses executors at that moment, the application waits for ever (seen with Spark 4.3).
    """
    none = context._jvm.PythonUtils.toScalaMap({})  # type: ignore[union-attr]  # no host is better than another
    context._jsc.sc().requestTotalExecutors(count, 0, none)


def _count_wanted(context: SparkContext) -> int:
    tracker = context.statusTracker()
    found = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return sum(each.numTasks - each.numCompletedTasks for each in found if each is not None)


def _count_not_begun(context: SparkContext) -> tuple[int, bool]:
    """Number of tasks of a stage of which none has begun, and whether a task of another stage runs."""
    tracker = context.statusTracker()
    found = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    stages = [each for each in found if each is not None]
    waiting = (e for e in stages if not e.numActiveTasks + e.numCompletedTasks + e.numFailedTasks)
    return next((each.numTasks for each in waiting), 0), any(each.numActiveTasks for each in stages)
