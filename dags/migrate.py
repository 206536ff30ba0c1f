"""Airflow DAG `migrate__<name>` for every topology file with a migration: its waves, a group a wave, a task a step."""

from airflow.sdk import DAG

from plugins.watershed_courses import in_order
from plugins.watershed_params import APPROVAL, DRY_RUN, PLAN_HASH, strategy_param, waves_param
from plugins.watershed_topologies import TopologyFile, dags_of
from plugins.watershed_waves import build, cutover_asset

DOC = """
### Migrate the applications of `{name}`
Along the flow `{flow}`, wave after wave, each in the order of its strategy; always fence, barrier, drain to the
barrier, prove, switch:

{waves}

Every step is in the journal on the target cluster. A wave that is refused before its point of no return is taken back
by itself and alone: waves that are done stay done, later ones do not begin, and the run fails.

To go on with a run that was interrupted, clear its failed task and all after it. Marking a task as success changes
nothing outside: the next one looks into the journal. `topology journal` shows what was decided.
"""


def migrate(file: TopologyFile) -> DAG:
    migration = file.plan.migration
    waves = in_order(migration)
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
        doc_md=file.told(DOC.format(name=file.name, flow=migration.flow, waves=told)),
    )
    params = {
        "waves": waves_param(names, names, "The waves to move; one that the journal has as done is passed over."),
        "strategy": strategy_param(),
        "approval": APPROVAL,
        "dry_run": DRY_RUN,
        "plan_hash": PLAN_HASH,
    }
    return build(dag, file, "migrate", names, params, outlet=cutover_asset(file.name))


globals().update(dags_of("migrate", migrate, lambda file: file.plan is None or file.plan.migration is not None))
