"""Airflow DAG `after_cutover__<name>` for every topology file with a migration: begins when a wave is done."""

from datetime import timedelta

from airflow.sdk import DAG, BaseOperator

from watershed.plugins.operators.decommission import (
    DecommissionApprovalOperator,
    RequirementsOperator,
    TellDecommissionOperator,
)
from watershed.plugins.operators.proof import ProofOperator
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.operators.straggler_watch import StragglerWatchOperator
from watershed.plugins.operators.wave_task_groups import build_cutover_asset
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

AFTER_CUTOVER_DOC = """
### After the cutover of `{name}`
Begins when a wave is done (asset `{asset}`). Watches `{source}` until no wave can be rolled back any more. If anybody
but the reverse flow writes there, the run fails, because such records stay behind at `{source}`. If there is a reverse
flow, a proof then shows that `{source}` has everything that was written at `{target}` since the switch. Then {then}.

This DAG deletes nothing, also after an approval.
"""
DECOMMISSION_TEXT = "a person decides whether to take `{source}` down, if all requirements of `decommission` are met"


def build_after_cutover_dag(file: TopologyFile) -> DAG:
    """Runs after every wave: the cutover asset triggers it, so it is the only DAG that starts unpaused."""
    migration, flow = file.require_migration()
    asset = build_cutover_asset(file.name)
    source = flow.source
    then = (
        DECOMMISSION_TEXT.format(source=source)
        if migration.decommission
        else "the run ends, because the file declares no `decommission`"
    )
    with DAG(
        dag_id=f"after_cutover__{file.name}",
        auto_register=False,
        schedule=[asset],
        max_active_runs=1,
        is_paused_upon_creation=False,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=[*file.tags, "after_cutover"],
        doc_md=file.told(
            AFTER_CUTOVER_DOC.format(name=file.name, asset=asset.uri, source=source, target=flow.target, then=then)
        ),
    ) as dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path))
        last: BaseOperator = StragglerWatchOperator(task_id="straggler_watch", plan=frozen)
        compiled >> last
        told = ["--topology", "{topology}", "--out", "{out}"]
        reverse = sorted({wave.rollback.reverse for wave in migration.waves if wave.rollback and wave.rollback.reverse})
        if reverse:
            told += [word for name in reverse for word in ("--flow", name)]
            verify = ProofOperator(task_id="verify", plan=frozen, arguments=told, incremental=False, retries=1)
            last >> verify
            last = verify
        if migration.decommission:
            proof = "verify" if reverse else ""
            checked = RequirementsOperator(task_id="requirements", plan=frozen, proof=proof)
            asked = DecommissionApprovalOperator(
                task_id="approve_decommission",
                plan=frozen,
                evidence="requirements",
                question=f"May {source} be taken down?",
            )
            last >> checked >> asked >> TellDecommissionOperator(task_id="what_is_left", plan=frozen)
    return dag


globals().update(
    build_topology_dags(
        "after_cutover", build_after_cutover_dag, lambda file: file.plan is not None and file.plan.migration is not None
    )
)
