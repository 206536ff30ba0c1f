"""What is said while Spark gives an application nothing to run on. Nothing here needs Spark."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from watershed.spark.cluster_cores import ClusterApplication, ClusterCores, ClusterWorker
from watershed.spark.resource_wait import _Waiting, warn_while_waiting


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

    applicationId = "app-2"
    master = "local[2]"  # which says nothing of its cores

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
    with warn_while_waiting(context, said.append, look_s=0.01, patient_s=0.0, again_s=0.0):
        assert until.wait(60)
    return said


def test_a_job_of_which_no_task_begins_says_so_until_one_does() -> None:
    context = Context(Stage(), Stage(), Stage(numActiveTasks=1))
    said = heard(context, context.asked)
    assert said[0].startswith("waiting for Spark: it has begun none of 4 tasks in 0 s. Is the cluster full")
    assert said[2:] in ([], ["Spark has begun: after 0 s"])  # it looks once more at the end, or does not
    assert len(said) >= 2


def wait(*looks: tuple[float, ClusterCores | None], runs: bool = False) -> list[str]:
    """What is said at these moments. A look without cores: nothing is known of the cluster. runs: another job does."""
    said: list[str] = []
    waiting = _Waiting(said.append, 20.0, 120.0)
    for now, cores in looks:
        waiting.look(now, 4, cores, "app-2", runs=runs)
    waiting.end(looks[-1][0] + 1)
    return said


def test_a_master_that_gives_us_no_core_is_told_at_once_and_again_after_two_minutes() -> None:
    full = master(held=0)
    said = wait((2.0, full), (4.0, full), (120.0, full), (122.0, full))
    assert [each[:26] for each in said] == [*["waiting for Spark: 0 of 2 c"[:26]] * 2, "Spark has begun: after 121"]


def test_a_worker_more_than_there_are_cores_is_told_with_the_holders() -> None:
    [said, _] = wait((2.0, master(held=1)), (22.0, master(held=1)), runs=True)
    assert "watershed-replicate-a holds 1. It begins as soon as one is free" in said


def test_cores_on_which_nothing_runs_are_not_waited_for() -> None:
    """Executors that start and end for ever: the master says that the application has its core."""
    ours = replace(master(held=1), page="http://m:8080")
    [said, _] = wait((2.0, ours), (22.0, ours))
    assert said.startswith("waiting for Spark: it has begun none of 4 tasks in 20 s. The application has its cores")
    assert "http://m:8080/app/?appId=app-2 lists executors that EXITED" in said


def test_executors_that_start_and_masters_that_say_nothing_get_time() -> None:
    free = replace(master(held=1), workers=(ClusterWorker(3, 1, 512),))
    assert wait((2.0, free), (20.0, free)) == []
    none_yet = replace(master(held=0), workers=(ClusterWorker(3, 1, 512),))  # it is being asked for
    assert wait((2.0, none_yet), (20.0, none_yet)) == []
    assert wait((2.0, master(held=1)), (20.0, master(held=1))) == []
    assert wait((2.0, None), (20.0, None)) == []
    for known in (None, free):
        said = wait((2.0, known), (22.0, known))[0]
        assert said.startswith("waiting for Spark: it has begun none of 4 tasks in 20 s")
        assert ("has its cores" in said) is (known is not None)


def test_a_request_that_the_master_may_have_lost_is_made_again() -> None:
    """A cluster with room gives us nothing: its master was restarted, and Spark tells it only what changes."""
    waiting = _Waiting(lambda _text: None, 20.0, 120.0)
    none_yet = replace(master(held=0), workers=(ClusterWorker(3, 1, 512),))
    moments = (2.0, 20.0, 22.0, 24.0, 140.0, 142.0)
    assert [now for now in moments if waiting.look(now, 4, none_yet, "app-2")] == [22.0, 142.0]
    for known in (master(held=0), replace(master(held=1), page="http://m:8080")):  # full; executors that start
        waiting = _Waiting(lambda _text: None, 20.0, 120.0)
        assert [now for now in moments if waiting.look(now, 4, known, "app-2")] == []


def test_it_is_asked_for_all_tasks_that_run_or_wait() -> None:
    wanted: list[int] = []
    context: Any = Context(Stage())
    with warn_while_waiting(
        context, lambda _text: None, ask_again=wanted.append, look_s=0.01, patient_s=0.0, again_s=0.0
    ):
        context.asked.wait(60)
        while not wanted:
            context.asked.wait(0.01)
    assert set(wanted) == {4}


def test_a_master_that_has_forgotten_us_is_told() -> None:
    full = master(held=0)
    gone = replace(full, applications=full.applications[:1])
    [said, _] = wait((2.0, gone), (22.0, gone))
    assert said.startswith("waiting for Spark: spark://m:7077 does not know this application (app-2).")


def master(held: int) -> ClusterCores:
    """One with two cores, of which fleets hold the rest."""
    fleet = ClusterApplication("app-0", "watershed-replicate-a", 2 - held, 0, 512)
    ours = ClusterApplication("app-2", "watershed-verify-a", held, 2, 512)
    return ClusterCores("spark://m:7077", (ClusterWorker(2, 0, 0),), (fleet, ours))


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
