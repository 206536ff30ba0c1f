"""What Airflow itself knows of the runs of a topology's DAGs: who started them, what failed, and who is waited for.

The journal knows nothing of a run that failed before its first step, of a dry run, or of the person who pressed the
button. Callers pass only DAGs whose runs their user may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

_Row = dict[str, Any]
_RUNS = 30
_FAILED_TASKS = 10
_QUESTIONS = 20
_SUBJECT_CHARS = 300
_RECENT = timedelta(hours=24)
_OPEN = ("queued", "running")
_WATCHER = "watcher"  # it fails because another task has failed


def list_recent_runs(dags: Sequence[str]) -> list[_Row]:
    """The newest runs of these DAGs, the newest first: those that are open, and those of the last day.

    `failed`: the tasks that failed by themselves, with their try, as Airflow's interface for logs names them.
    """
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import or_, select

    if not dags:
        return []
    since = datetime.now(UTC) - _RECENT
    with create_session() as session:
        asked = select(DagRun).where(DagRun.dag_id.in_(dags))
        asked = asked.where(or_(DagRun.state.in_(_OPEN), DagRun.queued_at > since, DagRun.end_date > since))
        rows = [_run(each) for each in session.scalars(asked.order_by(DagRun.id.desc()).limit(_RUNS))]
        failed = [row for row in rows if row["state"] == "failed"]
        tasks = _failed_tasks(session, [(row["dag"], row["run"]) for row in failed])
    for row in failed:
        row["failed"] = tasks.get((row["dag"], row["run"]), [])[:_FAILED_TASKS]
    return rows


def list_open_questions(dags: Sequence[str]) -> list[_Row]:
    """What people are asked in runs of these DAGs and have not answered, the oldest first."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState
    from sqlalchemy import select

    if not dags:
        return []
    waiting = (TaskInstanceState.AWAITING_INPUT, TaskInstanceState.DEFERRED)
    with create_session() as session:
        asked = (
            select(HITLDetail.subject, HITLDetail.created_at, TaskInstance.dag_id, TaskInstance.run_id)
            .add_columns(TaskInstance.task_id, TaskInstance.map_index)
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(TaskInstance.dag_id.in_(dags), HITLDetail.responded_at.is_(None), TaskInstance.state.in_(waiting))
            .order_by(HITLDetail.created_at)
            .limit(_QUESTIONS)
        )
        return [
            {
                "subject": str(subject)[:_SUBJECT_CHARS],
                "since_ms": _to_ms(created),
                "dag": dag,
                "run": run,
                "task": task,
                "index": index,
            }
            for subject, created, dag, run, task, index in session.execute(asked).all()
        ]


def _run(found: Any) -> _Row:
    conf: Mapping[str, Any] = found.conf if isinstance(found.conf, Mapping) else {}
    return {
        "dag": found.dag_id,
        "run": found.run_id,
        "state": str(found.state),
        "by": found.triggering_user_name,
        "how": str(found.run_type),
        "queued_ms": _to_ms(found.queued_at),
        "began_ms": _to_ms(found.start_date),
        "ended_ms": _to_ms(found.end_date),
        "dry_run": conf.get("dry_run") is True,
        "failed": [],
    }


def _failed_tasks(session: Any, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[_Row]]:
    """By DAG and run."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select, tuple_

    if not runs:
        return {}
    asked = (
        select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.try_number)
        .add_columns(TaskInstance.map_index)
        .where(tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(list(runs)))
        .where(TaskInstance.state == "failed", TaskInstance.task_id != _WATCHER)
        .order_by(TaskInstance.start_date)
        .limit(_RUNS * _FAILED_TASKS)
    )
    found: dict[tuple[str, str], list[_Row]] = {}
    for dag, run, task, number, index in session.execute(asked).all():
        found.setdefault((dag, run), []).append({"task": task, "try": number, "index": index})
    return found


def _to_ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
