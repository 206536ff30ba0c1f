"""The DAGs of operations beside runs: `inspect__`, `operate__`, `decide__`, `drill__` and `abandon__<name>`.

They are divided by who may do what, because Airflow's rights are per DAG (decision 0090). One file of DAGs has all:
each file costs Airflow a process whenever it is parsed. A DAG gets its params behind its tasks: each of
them would copy the params.
"""

from __future__ import annotations

from airflow.sdk import DAG

from watershed.plugins.operation_params import (
    build_abandon_params,
    build_decide_params,
    build_drill_params,
    build_inspect_params,
    build_operate_params,
)
from watershed.plugins.operators.command_line import DrillOperator, InspectOperator, ShowDrillOperator
from watershed.plugins.operators.operations import ApproveOperationOperator, add_operation_tasks
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.steps.migration_dag_tasks import order_waves
from watershed.plugins.topology_dags import TopologyFile

INSPECT_DOC = """
### Inspect `{name}`
Runs a command that changes nothing, in the log of the task `inspect`. Its files (an inventory, a report) are in the
folder that is the task's result. `probe` makes a topic of its own and removes it. The task fails where the command
finds something wrong, as it would end with exit code 1 in a terminal.
"""
OPERATE_DOC = """
### Operate the flows of `{name}`
Pause, resume, stop or restart a flow, or commit translated positions of its groups now. `show` says what would be done
and how the flow is; `approve` asks a person with that in view; `carry_out` does it.

Who approved is written down: `inspect__{name}` with `orders` shows it. What stays as it is decided is in
`decide__{name}`.
"""
DECIDE_DOC = """
### Decide for `{name}`
Decisions that stay: give up records that expired, copy a topic again, copy what names a flow as its producer, go on
behind another copier, set a group's position back. `show` names offsets and records; `approve` always asks a person;
`carry_out` refuses what is not what was approved, writes the decision to `watershed.journal`, and waits for the worker.

Which decision a halted partition needs stands on the page *Replication* and in docs/states.md.
"""
DRILL_DOC = """
### Rehearse a wave of `{name}`
On copies of the newest records of its topics, with producers and consumers of its own: there, and back where the file
has a way back. Counts what was lost or read again, says the seconds without writes, and removes what it made. The real
topics are only read. The task `drill` holds its worker slot meanwhile. If its worker is lost, run `abandon__{name}`.
"""
ABANDON_DOC = """
### Give up the unfinished run of `{name}`
Whoever began it: a migration, rollback, failover or failback in Airflow or in a terminal, or a rehearsal whose worker
was lost. `show` names the run and what would be undone, `approve` always asks a person. Behind the point of no return
nothing is taken back: use `rollback__{name}`, or go on.
"""


def build_inspect_dag(file: TopologyFile) -> DAG:
    """compile, inspect. Triggered by hand only."""
    with DAG(
        dag_id=f"inspect__{file.name}",
        auto_register=False,
        schedule=None,
        render_template_as_native_obj=True,
        tags=[*file.tags, "inspect"],
        doc_md=file.told(INSPECT_DOC.format(name=file.name)),
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path))
        compiled >> InspectOperator(task_id="inspect", plan="{{ ti.xcom_pull('compile') }}")
    dag.params.update(build_inspect_params(file.require_plan()))
    return dag


def build_operate_dag(file: TopologyFile) -> DAG:
    """compile, show, approve, carry_out. Triggered by hand only."""
    dag = DAG(
        dag_id=f"operate__{file.name}",
        auto_register=False,
        schedule=None,
        render_template_as_native_obj=True,
        tags=[*file.tags, "operate"],
        doc_md=file.told(OPERATE_DOC.format(name=file.name)),
    )
    return add_operation_tasks(dag, file, build_operate_params(file.require_plan()), family="operation")


def build_decide_dag(file: TopologyFile) -> DAG:
    """compile, show, approve, carry_out. Triggered by hand only."""
    dag = DAG(
        dag_id=f"decide__{file.name}",
        auto_register=False,
        schedule=None,
        render_template_as_native_obj=True,
        tags=[*file.tags, "decide"],
        doc_md=file.told(DECIDE_DOC.format(name=file.name)),
    )
    return add_operation_tasks(
        dag, file, build_decide_params(file.require_plan()), family="operation", always_asks=True
    )


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
    ) as dag:
        frozen = "{{ ti.xcom_pull('compile') }}"
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path), expected="{{ params.plan_hash }}")
        shown = ShowDrillOperator(task_id="show", plan=frozen)
        approval = "{{ params.approval }}"
        asked = ApproveOperationOperator(task_id="approve", evidence="show", approval=approval)
        drill = DrillOperator(task_id="drill", plan=frozen, answer="approve", approval=approval)
        compiled >> shown >> asked >> drill
    dag.params.update(build_drill_params([wave.name for wave in order_waves(migration)]))
    return dag


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
    )
    return add_operation_tasks(dag, file, build_abandon_params(), family="abandon", always_asks=True)


def has_plan(file: TopologyFile) -> bool:
    """Whether the file has ever compiled."""
    return file.plan is not None


def has_migration(file: TopologyFile) -> bool:
    """Whether the file declares applications that move."""
    return file.plan is not None and file.plan.migration is not None
