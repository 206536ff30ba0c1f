"""Airflow DAG `failback__<name>` for every topology file with a migration: back to a source that is there again."""

from airflow.sdk import DAG

from watershed.plugins.dag_params import (
    APPROVAL_PARAM,
    DIVERGENCE_PARAM,
    DRY_RUN_PARAM,
    PLAN_HASH_PARAM,
    build_waves_param,
)
from watershed.plugins.operators.wave_task_groups import add_wave_groups
from watershed.plugins.steps.migration_dag_tasks import list_wave_groups, order_waves
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

FAILBACK_DOC = """
### Back to `{source}` after a failover
Shows what only `{source}` holds (records that were written there and never copied), carries back what was written at
`{target}` since, proves it, and moves the applications. Nothing is merged without being asked.
"""


def build_failback_dag(file: TopologyFile) -> DAG:
    """One group for the chosen waves: a task a stage of the failback, triggered by hand only."""
    migration, flow = file.require_migration()
    names = list_wave_groups(file.plan, "failback")
    dag = DAG(
        dag_id=f"failback__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "failback"],
        doc_md=file.told(FAILBACK_DOC.format(name=file.name, source=flow.source, target=flow.target)),
    )
    waves = [wave.name for wave in order_waves(migration)]
    params = {
        "waves": build_waves_param(
            waves, [], "The waves that were promoted; none chosen: those of the newest failover."
        ),
        "divergence": DIVERGENCE_PARAM,
        "approval": APPROVAL_PARAM,
        "dry_run": DRY_RUN_PARAM,
        "plan_hash": PLAN_HASH_PARAM,
    }
    return add_wave_groups(dag, file, "failback", names, params)


globals().update(
    build_topology_dags("failback", build_failback_dag, lambda file: bool(list_wave_groups(file.plan, "failback")))
)
