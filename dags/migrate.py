"""Airflow DAG `migrate__<name>` for every topology file with a migration: a group a wave, a task a stage of steps."""

from airflow.sdk import DAG

from watershed.plugins.dag_params import (
    APPROVAL_PARAM,
    DRY_RUN_PARAM,
    PLAN_HASH_PARAM,
    build_strategy_param,
    build_waves_param,
)
from watershed.plugins.operators.wave_task_groups import add_wave_groups, build_cutover_asset
from watershed.plugins.steps.migration_dag_tasks import order_waves
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

MIGRATE_DOC = """
### Migrate the applications of `{name}`
Along the flow `{flow}`, wave after wave, each in the order of its strategy; always fence, barrier, drain to the
barrier, prove, switch:

{waves}

Steps that follow each other without a person and without a long wait are one task; its log and the page *Replication*
show each of them. Every step is in the journal on the target cluster. A wave that is refused before its point of no
return is taken back by itself and alone: waves that are done stay done, later ones do not begin, and the run fails.

To go on with a run that was interrupted, clear its failed task and all after it. Marking a task as success changes
nothing outside: the next one looks into the journal. `topology journal` shows what was decided.
"""


def build_migrate_dag(file: TopologyFile) -> DAG:
    """A group a wave, each behind the waves that its `after` names. The last task of a wave emits the cutover asset."""
    migration, _ = file.require_migration()
    waves = order_waves(migration)
    told = "\n".join(
        f"- **{wave.name}** ({wave.strategy}): consumers {', '.join(wave.consumers) or 'none'}; "
        f"producers {', '.join(wave.producers) or 'none'}" + (f"; after {', '.join(wave.after)}" if wave.after else "")
        for wave in waves
    )
    names = [wave.name for wave in waves]
    dag = DAG(
        dag_id=f"migrate__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "migrate"],
        doc_md=file.told(MIGRATE_DOC.format(name=file.name, flow=migration.flow, waves=told)),
    )
    params = {
        "waves": build_waves_param(
            names, names, "The waves to move; one that the journal has as done is passed over.", required=True
        ),
        "strategy": build_strategy_param(),
        "approval": APPROVAL_PARAM,
        "dry_run": DRY_RUN_PARAM,
        "plan_hash": PLAN_HASH_PARAM,
    }
    return add_wave_groups(dag, file, "migrate", names, params, outlet=build_cutover_asset(file.name))


globals().update(
    build_topology_dags("migrate", build_migrate_dag, lambda file: file.plan is None or file.plan.migration is not None)
)
