"""Airflow DAG `after_cutover__<name>` for every topology file with a migration: begins when a wave is done."""

from datetime import timedelta

from airflow.sdk import DAG

from plugins.watershed_after import StragglerWatchOperator
from plugins.watershed_decommission import (
    DecommissionApprovalOperator,
    RequirementsOperator,
    TellDecommissionOperator,
)
from plugins.watershed_flows import FreezePlanOperator
from plugins.watershed_proof import ProofOperator
from plugins.watershed_topologies import TopologyFile, dags_of
from plugins.watershed_waves import cutover_asset

DOC = """
### After the cutover of `{name}`
Begins when a wave is done (asset `{asset}`). Watches `{source}` until no wave can be rolled back any more: whoever but
the reverse flow writes there strands records, and fails the run. Then the reverse flow, where there is one, is proven:
all that was written at `{target}` since is at `{source}`, too. And {then}.

Nothing is deleted, whatever is approved.
"""
ASKS = "when the file's `decommission` is fulfilled, a person is asked whether `{source}` may be taken down"


def after_cutover(file: TopologyFile) -> DAG:
    migration = file.plan.migration
    flow, asset = file.plan.flow(migration.flow), cutover_asset(file.name)
    source = flow.source
    then = ASKS.format(source=source) if migration.decommission else "that is all: the file declares no `decommission`"
    with DAG(
        dag_id=f"after_cutover__{file.name}",
        auto_register=False,
        schedule=[asset],
        max_active_runs=1,
        is_paused_upon_creation=False,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=[*file.tags, "after_cutover"],
        doc_md=file.told(DOC.format(name=file.name, asset=asset.uri, source=source, target=flow.target, then=then)),
    ) as dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path))
        last = StragglerWatchOperator(task_id="straggler_watch", plan=frozen)
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
    dags_of("after_cutover", after_cutover, lambda file: file.plan is not None and file.plan.migration is not None)
)
