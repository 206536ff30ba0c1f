"""Warns when Spark starts no task: a cluster that is full or too small waits in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_FIRST_S = 20.0
_AGAIN_S = 120.0
_WAITING = (
    "waiting for Spark: it has begun none of {tasks} tasks in {seconds:.0f} s. Is the cluster full, or has no worker "
    "what spark.executor.memory and spark.executor.cores ask for?"
)


@contextmanager
def warn_while_waiting(
    context: SparkContext, say: Callable[[str], None], first: float = _FIRST_S, again: float = _AGAIN_S
) -> Iterator[None]:
    """Inside, calls `say` when no task has begun after `first` seconds, then every `again` seconds."""
    from py4j.protocol import Py4JError

    ended = threading.Event()

    def watch() -> None:
        waited, pause = 0.0, first
        while not ended.wait(pause):
            waited, pause = waited + pause, again
            try:
                tasks = _not_begun(context)
            except (Py4JError, OSError):  # Java is gone, which the job itself tells
                return
            if not tasks:
                return
            say(_WAITING.format(tasks=tasks, seconds=waited))

    thread = threading.Thread(target=watch, name="cores", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5.0)


def _not_begun(context: SparkContext) -> int:
    """Number of tasks of a stage of which none has begun."""
    tracker = context.statusTracker()
    for number in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(number)
        if stage is not None and not stage.numActiveTasks + stage.numCompletedTasks + stage.numFailedTasks:
            return stage.numTasks
    return 0
