"""Airflow DAG `decide__<name>` for every topology file: decisions about halted partitions and about groups."""

from airflow.sdk import DAG

from plugins.watershed.operation_params import build_decide_params
from plugins.watershed.operators.operations import add_operation_tasks
from plugins.watershed.topology_dags import TopologyFile, build_topology_dags

DECIDE_DOC = """
### Decide for `{name}`
Decisions that stay: give up records that expired, copy a topic again, copy what names a flow as its producer, go on
behind another copier, set a group's position back. `show` names offsets and records; `approve` always asks a person;
`carry_out` refuses what is not what was approved, writes the decision to `watershed.journal`, and waits for the worker.

Which decision a halted partition needs stands on the page *Replication* and in docs/states.md.
"""


def build_decide_dag(file: TopologyFile) -> DAG:
    """compile, show, approve, carry_out. Triggered by hand only."""
    dag = DAG(
        dag_id=f"decide__{file.name}",
        auto_register=False,
        schedule=None,
        render_template_as_native_obj=True,
        tags=[*file.tags, "decide"],
        doc_md=file.told(DECIDE_DOC.format(name=file.name)),
        params=build_decide_params(file.require_plan()),
    )
    return add_operation_tasks(dag, file, family="operation", always_asks=True)


globals().update(build_topology_dags("decide", build_decide_dag, lambda file: file.plan is not None))
