"""Airflow DAG `rollback__<name>` for every topology file with a migration: the way back of waves that are done."""

from airflow.sdk import DAG

from plugins.watershed_courses import groups_of
from plugins.watershed_params import APPROVAL, DRY_RUN, PLAN_HASH, STRANDED, waves_param
from plugins.watershed_topologies import TopologyFile, dags_of
from plugins.watershed_waves import build

DOC = """
### Take waves of `{name}` back
The applications of the chosen waves go back from `{target}` to `{source}`, the last wave first, along the reverse flow:
what was written at `{target}` since is carried back first, proven, and only then consumers and producers move. How many
records a blind switch back would strand is shown to the person who approves.

A wave that has not passed its point of no return is taken back by its own run (task `take_back`), not here.
"""


def rollback(file: TopologyFile) -> DAG:
    migration = file.plan.migration
    flow = file.plan.flow(migration.flow)
    names = groups_of(file.plan, "rollback")
    dag = DAG(
        dag_id=f"rollback__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "rollback"],
        doc_md=file.told(DOC.format(name=file.name, source=flow.source, target=flow.target)),
    )
    params = {
        "waves": waves_param(names, [], "The waves to take back, at least one; the last one goes first."),
        "stranded": STRANDED,
        "approval": APPROVAL,
        "dry_run": DRY_RUN,
        "plan_hash": PLAN_HASH,
    }
    return build(dag, file, "rollback", names, params)


globals().update(dags_of("rollback", rollback, lambda file: bool(groups_of(file.plan, "rollback"))))
