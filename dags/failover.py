"""Airflow DAG `failover__<name>` for every topology file with a migration: the source is gone."""

from airflow.sdk import DAG

from plugins.watershed_courses import groups_of, in_order
from plugins.watershed_params import ACCEPT_LOSS, APPROVAL, DRY_RUN, PLAN_HASH, THOUGH_SOURCE_ANSWERS, waves_param
from plugins.watershed_topologies import TopologyFile, dags_of
from plugins.watershed_waves import build

DOC = """
### Fail over to `{target}`
`{source}` is gone: the applications go on at `{target}` with what was copied. Nothing of `{source}` is needed. What
is lost, in records and seconds, is shown to the person who approves, and is in the journal. A source that answers is
refused: use `migrate__{name}`, which loses nothing.
"""


def failover(file: TopologyFile) -> DAG:
    migration = file.plan.migration
    flow = file.plan.flow(migration.flow)
    names = groups_of(file.plan, "failover")
    dag = DAG(
        dag_id=f"failover__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "failover"],
        doc_md=file.told(DOC.format(name=file.name, source=flow.source, target=flow.target)),
    )
    waves = [wave.name for wave in in_order(migration)]
    params = {
        "waves": waves_param(waves, [], "The waves to promote, as one; none chosen: everything that has not moved."),
        "accept_loss": ACCEPT_LOSS,
        "though_source_answers": THOUGH_SOURCE_ANSWERS,
        "approval": APPROVAL,
        "dry_run": DRY_RUN,
        "plan_hash": PLAN_HASH,
    }
    return build(dag, file, "failover", names, params)


globals().update(dags_of("failover", failover, lambda file: bool(groups_of(file.plan, "failover"))))
