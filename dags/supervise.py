"""Airflow DAG `supervise__<name>` for every topology file that says `workers.placement: task`."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from plugins.watershed.operators.fleet_actions import SuperviseFleetOperator, list_supervisor_queues
from plugins.watershed.operators.replication import FreezePlanOperator
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

SUPERVISE_DOC = """
### Supervisors of the fleets of `{name}`
The file says `placement: task`. A fleet has one task, or several where hosts of Airflow have a state folder each or
`WATERSHED_SUPERVISOR_QUEUES` names them. Each holds a worker slot until it is ended. A retry goes on with the plan that
was applied last. Pausing the DAG ends no task. Clear all tasks of a fleet to have it take over new addresses.
With one task, clearing it ends its workers: they hand over and begin again. Of several, one supervises and the others
stand by: if the first one dies, or its host, another one goes on after 10 s, and clearing ends no worker. Use
`fleet__{name}` to resize, restart or stop a fleet.
"""


def build_supervise_dag(file: TopologyFile) -> DAG:
    """Tasks that end only when they fail: one that supervises a fleet, and those that stand by."""
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
            queues = list_supervisor_queues()
            for number, queue in enumerate(queues, 1):
                compiled >> SuperviseFleetOperator(
                    task_id=f"supervise_{target}" + (f"_{number}" if len(queues) > 1 else ""),
                    plan="{{ ti.xcom_pull('compile') }}",
                    target=target,
                    **({"queue": queue} if queue else {}),
                )
    return dag


def has_supervised_fleets(file: TopologyFile) -> bool:
    """Whether tasks supervise a fleet of the file."""
    return file.plan is not None and any(flow.placement == "task" for flow in file.plan.flows)


globals().update(build_topology_dags("supervise", build_supervise_dag, has_supervised_fleets))
