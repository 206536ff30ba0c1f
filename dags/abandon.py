"""Airflow DAG `abandon__<name>` for every topology file with a migration: an unfinished run is given up."""

from airflow.sdk import DAG

from plugins.watershed.operation_params import build_abandon_params
from plugins.watershed.operators.operations import add_operation_tasks
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

ABANDON_DOC = """
### Give up the unfinished run of `{name}`
Whoever began it: a migration, rollback, failover or failback in Airflow or in a terminal, or a rehearsal whose worker
was lost. `show` names the run and what would be undone, `approve` always asks a person. Behind the point of no return
nothing is taken back: use `rollback__{name}`, or go on.
"""


def build_abandon_dag(file: TopologyFile) -> DAG:
    """compile, show, approve, carry_out. Triggered by hand only."""
    dag = DAG(
        dag_id=f"abandon__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "abandon"],
        doc_md=file.told(ABANDON_DOC.format(name=file.name)),
        params=build_abandon_params(),
    )
    return add_operation_tasks(dag, file, family="abandon", always_asks=True)


globals().update(
    build_topology_dags(
        "abandon", build_abandon_dag, lambda file: file.plan is not None and file.plan.migration is not None
    )
)
