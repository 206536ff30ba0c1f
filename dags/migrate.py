"""Airflow DAG `migrate__<name>` for every topology file with a migration: its staged cutover, a task a step."""

from airflow.sdk import DAG, Param

from plugins.watershed_cutover import (
    CutoverApprovalOperator,
    CutoverStepOperator,
    RollbackOperator,
    WatcherOperator,
)
from plugins.watershed_flows import FreezePlanOperator
from plugins.watershed_steps import rows_of
from plugins.watershed_topologies import TopologyFile, report_dag, topology_files

DOC = """
### Migrate the applications of `{name}`
Consumers {consumers} and then producers {producers} move along the flow `{flow}`, in the order fence, barrier,
drain to the barrier, prove, switch. Every step is in the journal on the target cluster; a failed step before the
point of no return takes everything back by itself, and the run fails.

To go on with a run that was interrupted, clear its failed task. `topology journal` shows what was decided.
"""


def migrate(file: TopologyFile) -> DAG:
    wave, migration = file.plan.migration.waves[0], file.plan.migration
    words = {"consumers": ", ".join(wave.consumers), "producers": ", ".join(wave.producers)}
    with DAG(
        dag_id=f"migrate__{file.name}",
        schedule=None,
        max_active_runs=1,
        render_template_as_native_obj=True,
        tags=["watershed", "migrate"],
        doc_md=DOC.format(name=file.name, flow=migration.flow, **words),
        params={
            "wave": Param(wave.name, enum=[w.name for w in migration.waves], description="The wave to move."),
            "approval": Param(
                "manual",
                enum=["manual", "auto"],
                description="auto: nobody is asked; the journal records the approvals as automatic.",
            ),
            "dry_run": Param(False, type="boolean", description="Only say what every step does, and how it is undone."),
            "plan_hash": Param(
                "",
                type="string",
                pattern="^(sha256:[0-9a-f]{64})?$",
                description="Refuse to run unless the file still compiles to this plan (`topology compile`).",
            ),
        },
    ) as dag:
        frozen, chosen = "{{ ti.xcom_pull('compile') }}", "{{ params.wave }}"
        told = {"rehearsal": "{{ params.dry_run }}", "approval": "{{ params.approval }}"}
        before = FreezePlanOperator(task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}")
        rollback, watcher = RollbackOperator(plan=frozen, wave=chosen), WatcherOperator()
        for row in rows_of(wave):
            operator = CutoverApprovalOperator if row.asks else CutoverStepOperator
            step = operator(row=row, plan=frozen, wave=chosen, **told)
            before >> step >> [rollback, watcher]
            before = step
        rollback >> watcher
    return dag


for _file in topology_files():
    if _file.is_wanted(_id := f"migrate__{_file.name}") and (_file.plan is None or _file.plan.migration):
        globals()[_id] = migrate(_file) if _file.plan else report_dag("migrate", _file)
