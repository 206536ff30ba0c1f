"""Follow a DAG run over REST: say what happens as it happens, and answer approvals when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from watershed.lab.airflow_client import FINAL_RUN_STATES, AirflowClient, ApprovalQuestion, TaskInstance

_Say = Callable[[str], None]
_SHOWN = {"success": "done", "failed": "FAILED", "upstream_failed": "not run", "awaiting_input": "asks for approval"}
# Airflow tries a task again whose answer comes before its scheduler has seen the asking process end (3.3.2); its own
# loop takes a third of a second (`plugins.operators.spark_application` TRIGGER_SETTLE_S).
_THINK_S = 3.0
_SILENCE_S = 15.0  # after so long without a word, a line says what is under way
_OVER = ("success", "failed", "upstream_failed", "skipped", "removed")


def follow_dag_run(
    client: AirflowClient,
    dag: str,
    run: str,
    say: _Say,
    *,
    answer: Callable[[ApprovalQuestion], str | None] = lambda question: None,
    interval: float = 1.0,
) -> str:
    """Returns the run's final state. `answer` gives `Approve`, `Reject` or None (no answer)."""
    report, asked = _TaskReport(say), dict[tuple[str, int], float]()
    while True:
        tasks = client.tasks(dag, run)
        over = all(task.state in _OVER for task in tasks)
        state = client.run_state(dag, run) if over else ""
        report.tell(tasks)
        if any(task.state == "awaiting_input" for task in tasks):
            for question in client.questions(dag, run):
                since = asked.setdefault((question.task, question.map_index), time.monotonic())
                if time.monotonic() - since < _THINK_S:
                    continue
                if (choice := answer(question)) is not None:
                    client.answer(question, choice)
                    say(f"  {question.task:20} {choice} is answered: {question.subject}")
        if state in FINAL_RUN_STATES:
            return state
        time.sleep(interval)


class _TaskReport:
    """Tells every change of a task's state once, and what runs when nothing has changed for a while."""

    def __init__(self, say: _Say) -> None:
        self._say = say
        self._told: dict[tuple[str, int], str] = {}
        self._spoke = time.monotonic()

    def tell(self, tasks: Sequence[TaskInstance]) -> None:
        for task in tasks:
            key = task.name, task.map_index
            if task.state is None or self._told.get(key) == task.state:
                continue
            self._told[key] = task.state
            if task.state in _SHOWN and task.state != "upstream_failed":
                self._say_now(_line(task))
        under_way = [task.name for task in tasks if task.state in ("running", "deferred")]
        if under_way and time.monotonic() - self._spoke > _SILENCE_S:
            self._say_now(f"  {', '.join(under_way):20} is under way")

    def _say_now(self, text: str) -> None:
        self._say(text)
        self._spoke = time.monotonic()


def read_failure_logs(client: AirflowClient, dag: str, run: str, lines: int = 12) -> list[str]:
    """The last log lines of every task that failed by itself."""
    told = []
    for task in client.tasks(dag, run):
        if task.state == "failed" and task.name != "watcher":
            told.append(f"{task.name}:")
            told += [f"    {line}" for line in client.log(dag, run, task.name)[-lines:]]
    return told


def _line(task: TaskInstance) -> str:
    took = f"{task.duration:6.1f} s" if task.duration is not None and task.state in _OVER else ""
    return f"  {task.name:20} {_SHOWN.get(task.state or '', task.state or ''):18} {took}".rstrip()
