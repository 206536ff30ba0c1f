"""Airflow DAG `failback__<name>` for every topology file with a migration: back to a source that is there again."""

from airflow.sdk import DAG

from plugins.watershed_courses import groups_of, in_order
from plugins.watershed_params import APPROVAL, DIVERGENCE, DRY_RUN, PLAN_HASH, waves_param
from plugins.watershed_topologies import TopologyFile, dags_of
from plugins.watershed_waves import build

DOC = """
### Back to `{source}` after a failover
Shows what only `{source}` holds (records that were written there and never copied), carries back what was written at
`{target}` since, proves it, and moves the applications. Nothing is merged without being asked.
"""


def failback(file: TopologyFile) -> DAG:
    migration = file.plan.migration
    flow = file.plan.flow(migration.flow)
    names = groups_of(file.plan, "failback")
    dag = DAG(
        dag_id=f"failback__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "failback"],
        doc_md=file.told(DOC.format(name=file.name, source=flow.source, target=flow.target)),
    )
    waves = [wave.name for wave in in_order(migration)]
    params = {
        "waves": waves_param(waves, [], "The waves that were promoted; none chosen: those of the newest failover."),
        "divergence": DIVERGENCE,
        "approval": APPROVAL,
        "dry_run": DRY_RUN,
        "plan_hash": PLAN_HASH,
    }
    return build(dag, file, "failback", names, params)


globals().update(dags_of("failback", failback, lambda file: bool(groups_of(file.plan, "failback"))))
