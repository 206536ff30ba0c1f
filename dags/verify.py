"""Airflow DAG `verify__<name>` for every topology file: the proof of its flows in one Spark application."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from watershed.plugins.operators.proof import ProofOperator, PublishProofOperator, build_proof_asset
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.topology_dags import TopologyFile, build_topology_dags

VERIFY_DOC = """
### Verify `{name}`
Reads both sides of every flow up to an offset vector that is fixed first, and compares content: `unproven` must
be 0. The run succeeds only when everything is proven. The tab **Proof** of a run shows its report, and while it
runs how far it is; the result is an event of the asset `{asset}`, whatever the verdict.
"""


def build_verify_dag(file: TopologyFile) -> DAG:
    """Runs as often as the smallest `verify.every` of the file's flows asks; without one, by hand only."""
    plan = file.require_plan()
    flows = [str(flow.id) for flow in plan.flows]
    level = max((flow.verify.level for flow in plan.flows), default="L1")
    every = min((flow.verify.every_ms for flow in plan.flows if flow.verify.every_ms), default=None)
    with DAG(
        dag_id=f"verify__{file.name}",
        auto_register=False,
        schedule=None if every is None else timedelta(milliseconds=every),
        catchup=False,
        max_active_runs=1,
        render_template_as_native_obj=True,
        default_args={"retry_delay": timedelta(seconds=10)},
        tags=[*file.tags, "verify"],
        doc_md=file.told(VERIFY_DOC.format(name=file.name, asset=build_proof_asset(file.name).uri)),
        params={
            "flow": Param("all", enum=["all", *flows], description="One flow, or all of them."),
            "level": Param(
                level,
                enum=["L0", "L1", "L2", "L3"],
                description="L0 compares metadata only, L1 every record; L2 names every difference, L3 tries consumer "
                "groups, too. Default: the deepest `verify.level` of the file.",
            ),
            "final": Param(
                False,
                type="boolean",
                description="After a fence: all up to the logs' ends; what is not copied yet forbids the word proven.",
            ),
            "incremental": Param(
                True,
                type="boolean",
                description="Build on the newest earlier run: of what it has proven only a sample is read again.",
            ),
            "wait": Param(
                30, type="number", minimum=0, maximum=86_400, description="Seconds for the flows to catch up."
            ),
        },
    ) as dag:
        compiled = FreezePlanOperator(task_id="compile", path=str(file.path))
        proof = ProofOperator(
            task_id="prove",
            plan="{{ ti.xcom_pull('compile') }}",
            incremental="{{ params.incremental }}",
            arguments=[
                *("--topology", "{topology}", "--out", "{out}"),
                *("--level", "{{ params.level }}", "--wait={{ params.wait }}"),
                "{{ '' if params.flow == 'all' else '--flow=' ~ params.flow }}",
                "{{ '--final' if params.final else '' }}",
            ],
            retries=1,
        )
        # As a teardown it runs whatever came, and does not decide whether the run has succeeded.
        told = PublishProofOperator(task_id="publish", topology=file.name, proof="prove").as_teardown()
        compiled >> proof >> told
    return dag


globals().update(build_topology_dags("verify", build_verify_dag, lambda _: True))
