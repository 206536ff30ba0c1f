"""Airflow DAGs `fleet__<name>` for every topology file, and `supervise__<name>` where tasks supervise its fleets."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param

from plugins.watershed.dag_params import PLAN_HASH_PARAM
from plugins.watershed.operators.fleet_actions import (
    ALL_FLEETS,
    FleetActionOperator,
    FleetSizedOperator,
    SuperviseFleetOperator,
)
from plugins.watershed.operators.replication import FreezePlanOperator
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

FLEET_DOC = """
### The fleets of `{name}`
A fleet is the workers of this topology into one cluster. `heal` starts a supervisor where one is missing
(`placement: embedded`), and is what the schedule does{schedule}. `scale` changes the number of workers, `restart`
replaces them one after the other, `stop` has them hand their partitions over and end, `start` has the fleet run again.
`status` only tells. `topology fleet` does the same.
"""
SUPERVISE_DOC = """
### Supervisors of the fleets of `{name}`
The file says `placement: task`: each task of this DAG supervises one fleet for as long as the DAG is not paused, and a
retry goes on where it was. Pause the DAG and clear its tasks to move a supervisor to another Airflow worker; use
`fleet__{name}` to resize, restart or stop a fleet.
"""
_SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def build_fleet_dag(file: TopologyFile) -> DAG:
    """Three tasks: compile, act, wait. Scheduled where the file says `workers.heal`."""
    plan = file.require_plan()
    every = min((flow.heal_ms for flow in plan.flows if flow.heal_ms is not None), default=0)
    schedule = timedelta(milliseconds=every) if every else None
    with DAG(
        dag_id=f"fleet__{file.name}",
        auto_register=False,
        schedule=schedule,
        start_date=_SINCE,
        catchup=False,
        is_paused_upon_creation=None if schedule is None else False,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=[*file.tags, "fleet"],
        doc_md=file.told(FLEET_DOC.format(name=file.name, schedule=f" every {every / 1000:g} s" if every else "")),
        params={
            "action": Param(
                "heal",
                enum=["heal", "status", "start", "scale", "restart", "stop"],
                description="What to do. heal: start missing supervisors; status: only tell.",
            ),
            "target": Param(
                ALL_FLEETS,
                enum=[ALL_FLEETS, *sorted({flow.target for flow in plan.flows})],
                description="The cluster whose fleet is meant.",
            ),
            "workers": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                maximum=256,
                description="How many workers; for scale and start.",
            ),
            "plan_hash": PLAN_HASH_PARAM,
        },
    ) as dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        action, target = "{{ params.action }}", "{{ params.target }}"
        compiled = FreezePlanOperator(
            task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}", do_xcom_push=True
        )
        acted = FleetActionOperator(
            task_id="act", plan=frozen, action=action, target=target, workers="{{ params.workers }}", retries=2
        )
        compiled >> acted >> FleetSizedOperator(task_id="wait", plan=frozen, action=action, target=target)
    return dag


def build_supervise_dag(file: TopologyFile) -> DAG:
    """One task a fleet, which ends only when it fails; Airflow begins the next run at once."""
    plan = file.require_plan()
    with DAG(
        dag_id=f"supervise__{file.name}",
        auto_register=False,
        schedule="@continuous",
        start_date=_SINCE,
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


globals().update(build_topology_dags("fleet", build_fleet_dag, lambda file: file.plan is not None))
globals().update(build_topology_dags("supervise", build_supervise_dag, has_supervised_fleets))
