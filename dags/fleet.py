"""Airflow DAG `fleet__<name>` for every topology file: resize, restart, stop and heal its fleets."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from watershed.plugins.dag_params import PLAN_HASH_PARAM
from watershed.plugins.operators.fleet_actions import (
    FleetActionOperator,
    FleetSizedOperator,
    FreezeFleetPlanOperator,
    build_fleet_params,
)
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

FLEET_DOC = """
### The fleets of `{name}`
A fleet is the workers of this topology into one cluster. `heal` starts a supervisor where one is missing
(`placement: embedded`), and is what the schedule does{schedule}. `scale` changes the number of workers, `restart`
replaces them one after the other, `stop` has them hand their partitions over and end, `start` has the fleet run again.
`status` only tells. `topology fleet` does the same.

If the file does not compile any more, `heal` and `status` go on with the last plan that did; everything else fails at
`compile`, which names the line. Workers go on with the plan that was applied last.
"""


def build_fleet_dag(file: TopologyFile) -> DAG:
    """Three tasks: compile, act, wait. Scheduled where the file says `workers.heal`."""
    plan = file.require_plan()
    every = min((flow.heal_ms for flow in plan.flows if flow.heal_ms is not None), default=0)
    with DAG(
        dag_id=f"fleet__{file.name}",
        auto_register=False,
        schedule=timedelta(milliseconds=every) if every else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        is_paused_upon_creation=False if every else None,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=[*file.tags, "fleet"],
        doc_md=file.told(
            FLEET_DOC.format(name=file.name, schedule=f" every {every / 1000:g} s" if every else " (the file has none)")
        ),
        params=build_fleet_params(sorted({flow.target for flow in plan.flows})) | {"plan_hash": PLAN_HASH_PARAM},
    ) as dag:
        frozen, action, target = "{{ ti.xcom_pull('compile') }}", "{{ params.action }}", "{{ params.target }}"
        compiled = FreezeFleetPlanOperator(
            task_id="compile",
            path=str(file.path),
            action=action,
            expected="{{ params.plan_hash }}",
            do_xcom_push=True,
        )
        acted = FleetActionOperator(
            task_id="act", plan=frozen, action=action, target=target, workers="{{ params.workers }}", retries=2
        )
        compiled >> acted >> FleetSizedOperator(task_id="wait", plan=frozen, action=action, target=target)
    return dag


globals().update(build_topology_dags("fleet", build_fleet_dag, lambda file: file.plan is not None))
