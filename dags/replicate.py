"""Airflow DAG `replicate__<name>` for every topology file: from the file to running flows."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from watershed.plugins.dag_params import PLAN_HASH_PARAM
from watershed.plugins.operation_params import APPLY_APPROVAL_PARAM
from watershed.plugins.operators.operations import ApproveOperationOperator
from watershed.plugins.operators.plan_review import ApplyPlanOperator, ReviewPlanOperator
from watershed.plugins.operators.replication import (
    FlowsRunningOperator,
    FreezePlanOperator,
    StartFleetsOperator,
)
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

REPLICATE_DOC = """
### Replicate `{name}`
Compiles `{path}` and freezes the plan. Shows what would change on the live clusters, field by field, with missing
rights and notes, and asks a person. Then creates the topics that are missing on the target clusters, writes the desired
flows, starts a fleet of workers for every target cluster, and waits until every partition is served.

Flows: {flows}

Run it again after every change of the file: what runs already is found, not started twice. The fleets go on
whatever happens to Airflow.
"""


def build_replicate_dag(file: TopologyFile) -> DAG:
    """One after the other: compile, plan, approve_apply, apply, start_fleets, wait_running. By hand only."""
    plan = file.require_plan()
    with DAG(
        dag_id=f"replicate__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=[*file.tags, "replicate"],
        doc_md=file.told(
            REPLICATE_DOC.format(name=file.name, path=file.path.name, flows=", ".join(f"`{f.id}`" for f in plan.flows))
        ),
        params={
            "workers": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                maximum=256,
                description="Workers in every fleet; empty: the number in the file.",
            ),
            "approval": APPLY_APPROVAL_PARAM,
            "plan_hash": PLAN_HASH_PARAM,
        },
    ) as dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        compiled = FreezePlanOperator(
            task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}", do_xcom_push=True
        )
        planned = ReviewPlanOperator(task_id="plan", plan=frozen, path=str(file.path), retries=2)
        approval = "{{ params.approval }}"
        approved = ApproveOperationOperator(task_id="approve_apply", evidence="plan", approval=approval)
        decided = {"evidence": "plan", "answer": "approve_apply", "approval": approval}
        applied = ApplyPlanOperator(task_id="apply", plan=frozen, path=str(file.path), retries=2, **decided)
        fleets = StartFleetsOperator(task_id="start_fleets", plan=frozen, workers="{{ params.workers }}", retries=1)
        running = FlowsRunningOperator(task_id="wait_running", plan=frozen, fleets=fleets.output, retries=2)
        compiled >> planned >> approved >> applied >> fleets >> running
    return dag


globals().update(build_topology_dags("replicate", build_replicate_dag, lambda _: True))
