"""Airflow DAG `operate__<name>` for every topology file: operations that another one takes back."""

from airflow.sdk import DAG

from plugins.watershed.operation_params import build_operate_params
from plugins.watershed.operators.operations import add_operation_tasks
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

OPERATE_DOC = """
### Operate the flows of `{name}`
Pause, resume, stop or restart a flow, or commit translated positions of its groups now. `show` says what would be done
and how the flow is; `approve` asks a person with that in view; `carry_out` does it.

Who approved is written down: `inspect__{name}` with `orders` shows it. What stays as it is decided is in
`decide__{name}`.
"""


def build_operate_dag(file: TopologyFile) -> DAG:
    """compile, show, approve, carry_out. Triggered by hand only."""
    dag = DAG(
        dag_id=f"operate__{file.name}",
        auto_register=False,
        schedule=None,
        render_template_as_native_obj=True,
        tags=[*file.tags, "operate"],
        doc_md=file.told(OPERATE_DOC.format(name=file.name)),
        params=build_operate_params(file.require_plan()),
    )
    return add_operation_tasks(dag, file, family="operation")


globals().update(build_topology_dags("operate", build_operate_dag, lambda file: file.plan is not None))
