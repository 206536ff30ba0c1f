"""What is said while Spark gives an application nothing to run on. Nothing here needs Spark."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from spark.resource_wait import warn_while_waiting


@dataclass
class Stage:
    numTasks: int = 4
    numActiveTasks: int = 0
    numCompletedTasks: int = 0
    numFailedTasks: int = 0


class Context:
    """Answers as a SparkContext's status tracker does, with one answer after the other and the last for ever."""

    def __init__(self, *stages: Stage | None) -> None:
        self._stages = list(stages)
        self.asked = threading.Event()

    def statusTracker(self) -> Context:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [7]

    def getStageInfo(self, number: int) -> Stage | None:
        stage = self._stages.pop(0) if len(self._stages) > 1 else self._stages[0]
        if not self._stages[1:]:
            self.asked.set()
        return stage


def heard(context: Any, until: threading.Event) -> list[str]:
    said: list[str] = []
    with warn_while_waiting(context, said.append, first=0.01, again=0.01):
        assert until.wait(60)
    return said


def test_a_job_of_which_no_task_begins_says_so_until_one_does() -> None:
    context = Context(Stage(), Stage(), Stage(numActiveTasks=1))
    said = heard(context, context.asked)
    assert len(said) == 2
    assert said[0].startswith("waiting for Spark: it has begun none of 4 tasks in 0 s. Is the cluster full")


@pytest.mark.parametrize("stage", [Stage(numActiveTasks=1), Stage(numCompletedTasks=1), Stage(numFailedTasks=1), None])
def test_nothing_is_said_of_a_job_that_runs(stage: Stage | None) -> None:
    context = Context(stage)
    assert heard(context, context.asked) == []


def test_java_that_is_gone_is_left_to_the_job() -> None:
    class Gone(Context):
        def getActiveStageIds(self) -> list[int]:
            self.asked.set()
            raise Py4JNetworkError("gone")

    context = Gone(None)
    assert heard(context, context.asked) == []
