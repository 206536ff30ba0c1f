"""What Airflow itself knows of the runs of a topology's DAGs: who started them, what failed, and who is waited for.

The journal knows nothing of a run that failed before its first step, of a dry run, or of the person who pressed the
button. Callers pass only DAGs whose runs their user may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

_Row = dict[str, Any]
_RUNS = 60
_RUNS_OF_DAG = 10
_FAILED_TASKS = 10
_QUESTIONS = 20
_SUBJECT_CHARS = 300
_RECENT = timedelta(hours=24)
_LONGEST_RUN = timedelta(days=7)  # an older run is told while it is open only
_SCHEDULED = "scheduled"
_OPEN = ("queued", "running")
_WATCHER = "watcher"  # it fails because another task has failed


def list_recent_runs(dags: Sequence[str]) -> list[_Row]:
    """Runs of these DAGs: those that are open first, then failed ones of the last day, dry runs, and the others; in
    each of these the newest first. At most _RUNS_OF_DAG of a DAG.

    What a schedule started and what succeeded is left out: proofs and supervisors run every few seconds, and would push
    out the migration that a person waits for. `failed`: the tasks that failed by themselves, with their try, as
    Airflow's interface for logs names them.
    """
    from airflow.utils.session import create_session

    if not dags:
        return []
    with create_session() as session:
        rows = [_run(each) for each in (*_list_open(session, dags), *_list_ended(session, dags))]
        rows = sorted(rows, key=_tell_place)[:_RUNS]
        failed = [row for row in rows if row["state"] == "failed"]
        tasks = _failed_tasks(session, [(row["dag"], row["run"]) for row in failed])
    for row in failed:
        row["failed"] = tasks.get((row["dag"], row["run"]), [])[:_FAILED_TASKS]
    return rows


def _list_open(session: Any, dags: Sequence[str]) -> list[Any]:
    """However old."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import case

    where = DagRun.state.in_(_OPEN)
    return _list_newest(session, dags, where, case((DagRun.run_type == _SCHEDULED, 1), else_=0))


def _list_ended(session: Any, dags: Sequence[str]) -> list[Any]:
    """Of the last day, without what a schedule started and what succeeded. Only `run_after` has an index."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import and_, case, or_

    now = datetime.now(UTC)
    is_of_interest = or_(DagRun.state == "failed", DagRun.run_type != _SCHEDULED)
    is_recent = or_(DagRun.run_after > now - _RECENT, DagRun.end_date > now - _RECENT)
    where = and_(DagRun.run_after > now - _LONGEST_RUN, DagRun.state.not_in(_OPEN), is_of_interest, is_recent)
    return _list_newest(session, dags, where, case((DagRun.state == "failed", 0), else_=1))


def _list_newest(session: Any, dags: Sequence[str], where: Any, rank: Any) -> list[Any]:
    """At most _RUNS_OF_DAG runs of each DAG, those of the lowest rank first, and of these the newest."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import func, select

    order = func.row_number().over(partition_by=DagRun.dag_id, order_by=(rank, DagRun.id.desc())).label("place")
    placed = select(DagRun.id, order).where(DagRun.dag_id.in_(dags), where).subquery()
    asked = select(DagRun).join(placed, DagRun.id == placed.c.id).where(placed.c.place <= _RUNS_OF_DAG)
    return list(session.scalars(asked.order_by(DagRun.id.desc())))


def _tell_place(row: _Row) -> tuple[int, int]:
    """Where a run stands in the list: what goes on, what failed, dry runs, the others; of each the newest first."""
    if row["state"] in _OPEN:
        rank = 1 if row["how"] == _SCHEDULED else 0
    else:
        rank = 2 if row["state"] == "failed" else 3 if row["dry_run"] else 4
    return rank, -(row["queued_ms"] or 0)


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
