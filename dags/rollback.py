"""Airflow DAG `rollback__<name>` for every topology file with a migration: the way back of waves that are done."""

from airflow.sdk import DAG

from watershed.plugins.dag_params import (
    APPROVAL_PARAM,
    DRY_RUN_PARAM,
    PLAN_HASH_PARAM,
    STRANDED_PARAM,
    build_waves_param,
)
from watershed.plugins.operators.wave_task_groups import add_wave_groups
from watershed.plugins.steps.migration_dag_tasks import list_wave_groups
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

ROLLBACK_DOC = """
### Take waves of `{name}` back
The applications of the chosen waves go back from `{target}` to `{source}`, the last wave first, along the reverse flow:
what was written at `{target}` since is carried back first, proven, and only then consumers and producers move. How many
records a blind switch back would strand is shown to the person who approves.

A wave that has not passed its point of no return is taken back by its own run (task `take_back`), not here.
"""


def build_rollback_dag(file: TopologyFile) -> DAG:
    """A group a wave, the last wave first; a wave without a way back has none. Triggered by hand only."""
    _, flow = file.require_migration()
    names = list_wave_groups(file.plan, "rollback")
    dag = DAG(
        dag_id=f"rollback__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "rollback"],
        doc_md=file.told(ROLLBACK_DOC.format(name=file.name, source=flow.source, target=flow.target)),
    )
    params = {
        "waves": build_waves_param(
            names,
            names if len(names) == 1 else [],
            "The waves to take back, at least one; the last one goes first.",
            required=True,
        ),
        "stranded": STRANDED_PARAM,
        "approval": APPROVAL_PARAM,
        "dry_run": DRY_RUN_PARAM,
        "plan_hash": PLAN_HASH_PARAM,
    }
    return add_wave_groups(dag, file, "rollback", names, params)


globals().update(
    build_topology_dags("rollback", build_rollback_dag, lambda file: bool(list_wave_groups(file.plan, "rollback")))
)
