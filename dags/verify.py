"""Airflow DAG `verify__<name>` for every topology file: the proof of its flows in one Spark application."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from plugins.watershed_flows import FreezePlanOperator
from plugins.watershed_spark import SparkApplicationOperator
from plugins.watershed_topologies import TopologyFile, report_dag, topology_files

DOC = """
### Verify `{name}`
Reads both sides of every flow up to an offset vector that is fixed first, and compares content: `unproven` must
be 0. The run succeeds only when everything is proven; `summary.json` lies where the task `prove` says.
"""


def verify(file: TopologyFile) -> DAG:
    flows = [str(flow.id) for flow in file.plan.flows]
    every = min((flow.verify_every_ms for flow in file.plan.flows if flow.verify_every_ms), default=None)
    with DAG(
        dag_id=f"verify__{file.name}",
        schedule=None if every is None else timedelta(milliseconds=every),
        catchup=False,
        max_active_runs=1,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=["watershed", "verify"],
        doc_md=DOC.format(name=file.name),
        params={
            "flow": Param("all", enum=["all", *flows], description="One flow, or all of them."),
            "level": Param(
                "L1",
                enum=["L0", "L1"],
                description="L0 compares metadata only, L1 the content of every record.",
            ),
            "final": Param(
                False,
                type="boolean",
                description="Nothing is written any more: what is not copied yet counts as missing.",
            ),
        },
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path))
        proof = SparkApplicationOperator(
            task_id="prove",
            plan="{{ ti.xcom_pull('compile') }}",
            module="spark.verify",
            arguments=[
                *("--topology", "{topology}", "--out", "{out}", "--level", "{{ params.level }}"),
                "{{ '' if params.flow == 'all' else '--flow=' ~ params.flow }}",
                "{{ '--final' if params.final else '' }}",
            ],
            retries=1,
        )
        compiled >> proof
    return dag


for _file in topology_files():
    if _file.is_wanted(_id := f"verify__{_file.name}"):
        globals()[_id] = verify(_file) if _file.plan else report_dag("verify", _file)
