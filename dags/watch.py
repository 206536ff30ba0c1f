"""Airflow DAG `watch__<name>` for every topology file with `slo.on_breach: fail`: a run that fails when a budget has
stopped a flow, and else ends as done after a day."""

from datetime import UTC, datetime

from airflow.sdk import DAG

from watershed.plugins.operators.budget_watch import BudgetWatchOperator
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

WATCH_DOC = """
### Budgets of `{name}` that fail
Flows that say `slo.on_breach: fail`: {flows}

A run waits, without a worker slot, until a budget stops one of them. Then it fails, with the partition that was late
and the command that lets the flow go on. Each breach fails one run; the next one begins at once and waits for the next
breach. A run in which none comes ends as done after a day, and the next one reads the file as it is then.

Unpause this DAG once. Workers stop a flow whether it is paused or not; it only tells of it.
"""


def build_watch_dag(file: TopologyFile) -> DAG:
    """Two tasks: compile, watch. There is always one run."""
    flows = [flow.id for flow in file.require_plan().flows if flow.breach is not None and flow.breach.action == "fail"]
    with DAG(
        dag_id=f"watch__{file.name}",
        auto_register=False,
        schedule="@continuous",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=[*file.tags, "slo"],
        doc_md=file.told(WATCH_DOC.format(name=file.name, flows=", ".join(f"`{flow}`" for flow in flows))),
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), do_xcom_push=True)
        compiled >> BudgetWatchOperator(task_id="watch", plan="{{ ti.xcom_pull('compile') }}")
    return dag


def has_failing_budgets(file: TopologyFile) -> bool:
    """Whether a flow of the file says `slo.on_breach: fail`."""
    return file.plan is not None and any(
        flow.breach is not None and flow.breach.action == "fail" for flow in file.plan.flows
    )


globals().update(build_topology_dags("watch", build_watch_dag, has_failing_budgets))
