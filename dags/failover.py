"""Airflow DAG `failover__<name>` for every topology file with a migration: the source is gone."""

from airflow.sdk import DAG

from watershed.plugins.dag_params import (
    ACCEPT_LOSS_PARAM,
    APPROVAL_PARAM,
    DRY_RUN_PARAM,
    PLAN_HASH_PARAM,
    THOUGH_SOURCE_ANSWERS_PARAM,
    build_waves_param,
)
from watershed.plugins.operators.wave_task_groups import add_wave_groups
from watershed.plugins.steps.migration_dag_tasks import list_wave_groups, order_waves
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

FAILOVER_DOC = """
### Fail over to `{target}`
`{source}` is gone: the applications go on at `{target}` with what was copied. Nothing of `{source}` is needed. What
is lost, in records and seconds, is shown to the person who approves, and is in the journal. A source that answers is
refused: use `migrate__{name}`, which loses nothing.
"""


def build_failover_dag(file: TopologyFile) -> DAG:
    """One group for the chosen waves: a task a stage of the failover, triggered by hand only."""
    migration, flow = file.require_migration()
    names = list_wave_groups(file.plan, "failover")
    dag = DAG(
        dag_id=f"failover__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "failover"],
        doc_md=file.told(FAILOVER_DOC.format(name=file.name, source=flow.source, target=flow.target)),
    )
    waves = [wave.name for wave in order_waves(migration)]
    params = {
        "waves": build_waves_param(
            waves, [], "The waves to promote, as one; none chosen: everything that has not moved."
        ),
        "accept_loss": ACCEPT_LOSS_PARAM,
        "though_source_answers": THOUGH_SOURCE_ANSWERS_PARAM,
        "approval": APPROVAL_PARAM,
        "dry_run": DRY_RUN_PARAM,
        "plan_hash": PLAN_HASH_PARAM,
    }
    return add_wave_groups(dag, file, "failover", names, params)


globals().update(
    build_topology_dags("failover", build_failover_dag, lambda file: bool(list_wave_groups(file.plan, "failover")))
)
