"""Airflow DAGs `supervise__<name>` for every topology file that says `workers.placement: task`; where tasks stand by,
`supervise_2__<name>` and so on, too."""

from datetime import UTC, datetime, timedelta
from functools import partial

from airflow.sdk import DAG

from watershed.plugins.operators.fleet_actions import SuperviseFleetOperator
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.supervisor_queues import SUPERVISE_KINDS, list_supervise_kinds, list_supervisor_queues
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

SUPERVISE_DOC = """
### Supervisors of the fleets of `{name}`
The file says `placement: task`. A fleet has one task here. Where hosts of Airflow have a state folder each, or
`WATERSHED_SUPERVISOR_QUEUES` names several queues, it has another one in `supervise_2__{name}` and so on: unpause all.
Each holds a worker slot until it is ended. A retry goes on with the plan that was applied last. Pausing the DAG ends no
task. Clear all tasks of a fleet to have it take over new addresses.
With one task, clearing it ends its workers: they hand over and begin again. Of several, one supervises and the others
stand by: if the first one dies, or its host, another one goes on after 10 s, and clearing ends no worker. Use
`fleet__{name}` to resize, restart or stop a fleet.
"""


def build_supervise_dag(file: TopologyFile, number: int) -> DAG:
    """Of the queue with this number, from 0. A fleet has one task, which supervises or stands by, and ends only when it
    fails. When it has failed for good, the next run of the DAG has another one."""
    plan, queue = file.require_plan(), list_supervisor_queues()[number]
    targets = sorted({flow.target for flow in plan.flows if flow.placement == "task"})
    with DAG(
        dag_id=f"{SUPERVISE_KINDS[number]}__{file.name}",
        auto_register=False,
        schedule="@continuous",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        max_active_tasks=len(targets) + 2,  # all of them and `compile`, which a person may clear meanwhile
        default_args={"retries": 1_000, "retry_delay": timedelta(seconds=5)},
        tags=[*file.tags, "fleet"],
        doc_md=file.told(SUPERVISE_DOC.format(name=file.name)),
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), do_xcom_push=True)
        for target in targets:
            compiled >> SuperviseFleetOperator(
                task_id=f"supervise_{target}",
                plan="{{ ti.xcom_pull('compile') }}",
                target=target,
                path=str(file.path),
                **({"queue": queue} if queue else {}),
            )
    return dag


def has_supervised_fleets(file: TopologyFile) -> bool:
    """Whether tasks supervise a fleet of the file."""
    return file.plan is not None and any(flow.placement == "task" for flow in file.plan.flows)


for place, kind in enumerate(list_supervise_kinds()):
    globals().update(build_topology_dags(kind, partial(build_supervise_dag, number=place), has_supervised_fleets))
