"""Airflow DAG `supervise__<name>` for every topology file that says `workers.placement: task`."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from plugins.watershed.operators.fleet_actions import SuperviseFleetOperator
from plugins.watershed.operators.replication import FreezePlanOperator
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

SUPERVISE_DOC = """
### Supervisors of the fleets of `{name}`
The file says `placement: task`: each task of this DAG supervises one fleet until it is ended, and a retry goes on where
it was, with the plan that was applied last. Pausing the DAG ends no task. Clear a task to move its supervisor to
another Airflow worker, or to have it take over new addresses; its workers hand over, end, and begin again there.
Use `fleet__{name}` to resize, restart or stop a fleet.
"""


def build_supervise_dag(file: TopologyFile) -> DAG:
    """One task a fleet, which ends only when it fails; Airflow begins the next run at once."""
    plan = file.require_plan()
    with DAG(
        dag_id=f"supervise__{file.name}",
        auto_register=False,
        schedule="@continuous",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args={"retries": 1_000, "retry_delay": timedelta(seconds=5)},
        tags=[*file.tags, "fleet"],
        doc_md=file.told(SUPERVISE_DOC.format(name=file.name)),
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), do_xcom_push=True)
        for target in sorted({flow.target for flow in plan.flows if flow.placement == "task"}):
            compiled >> SuperviseFleetOperator(
                task_id=f"supervise_{target}", plan="{{ ti.xcom_pull('compile') }}", target=target
            )
    return dag


def has_supervised_fleets(file: TopologyFile) -> bool:
    """Whether tasks supervise a fleet of the file."""
    return file.plan is not None and any(flow.placement == "task" for flow in file.plan.flows)


globals().update(build_topology_dags("supervise", build_supervise_dag, has_supervised_fleets))
