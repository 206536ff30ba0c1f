"""Airflow DAG `inspect__<name>` for every topology file: what the command line shows of a running system."""

from airflow.sdk import DAG

from plugins.watershed.operation_params import build_inspect_params
from plugins.watershed.operators.command_line import InspectOperator
from plugins.watershed.operators.replication import FreezePlanOperator
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

INSPECT_DOC = """
### Inspect `{name}`
Runs a command that changes nothing, in the log of the task `inspect`. Its files (an inventory, a report) are in the
folder that is the task's result. `probe` makes a topic of its own and removes it. The task fails where the command
finds something wrong, as it would end with exit code 1 in a terminal.
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
        params=build_inspect_params(file.require_plan()),
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path))
        compiled >> InspectOperator(task_id="inspect", plan="{{ ti.xcom_pull('compile') }}")
    return dag


globals().update(build_topology_dags("inspect", build_inspect_dag, lambda file: file.plan is not None))
