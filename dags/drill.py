"""Airflow DAG `drill__<name>` for every topology file with a migration: a wave rehearsed on copies of its topics."""

from airflow.sdk import DAG

from plugins.watershed.operation_params import build_drill_params
from plugins.watershed.operators.command_line import DrillOperator, ShowDrillOperator
from plugins.watershed.operators.operations import ApproveOperationOperator
from plugins.watershed.operators.replication import FreezePlanOperator
from plugins.watershed.steps.migration_dag_tasks import order_waves
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

DRILL_DOC = """
### Rehearse a wave of `{name}`
On copies of the newest records of its topics, with producers and consumers of its own: there, and back where the file
has a way back. Counts what was lost or read again, says the seconds without writes, and removes what it made. The real
topics are only read. The task `drill` holds its worker slot meanwhile. If its worker is lost, run `abandon__{name}`.
"""


def build_drill_dag(file: TopologyFile) -> DAG:
    """compile, show, approve, drill. Triggered by hand only."""
    migration, _ = file.require_migration()
    with DAG(
        dag_id=f"drill__{file.name}",
        auto_register=False,
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=[*file.tags, "drill"],
        doc_md=file.told(DRILL_DOC.format(name=file.name)),
        params=build_drill_params([wave.name for wave in order_waves(migration)]),
    ) as dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}")
        shown = ShowDrillOperator(task_id="show", plan=frozen)
        asked = ApproveOperationOperator(task_id="approve", evidence="show", approval="{{ params.approval }}")
        compiled >> shown >> asked >> DrillOperator(task_id="drill", plan=frozen, answer="approve")
    return dag


globals().update(
    build_topology_dags(
        "drill", build_drill_dag, lambda file: file.plan is not None and file.plan.migration is not None
    )
)
