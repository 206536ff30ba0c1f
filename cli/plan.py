"""`topology plan`"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from watershed.cutover.operations.plan_review import PlanReview


@click.command(epilog="Example: topology plan orders.yaml --fail-on-changes")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--fail-on-changes", is_flag=True, help="Exit 3 when `topology apply` would change something.")
@click.option(
    "--capabilities",
    "probed",
    multiple=True,
    type=click.Path(path_type=Path),
    help="What `topology probe` saw a cluster do; may be repeated.",
)
@click.option(
    "--spark", "with_spark", is_flag=True, help="Have Spark plan flows with `transform`, and tell the plan's hash, too."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also write the JSON document here.")
def plan(
    path: Path, form: str, fail_on_changes: bool, probed: tuple[Path, ...], with_spark: bool, output: Path | None
) -> int:
    """What `topology apply` would do on the live clusters, field by field, and what differs that it leaves alone.

    Read-only. Asks every rule, those about live clusters too. --spark starts Spark on this machine or where
    WATERSHED_SPARK_MASTER says; the hash is of what Spark runs, and a proof tells the same; expressions are judged and
    schemas compared as `topology lint --spark --registries` does. Exits 1 with errors among the findings, 2 when a
    cluster or registry does not answer, 3 with --fail-on-changes and changes.
    """
    from watershed.cli.output_files import require_writable, write_output_files
    from watershed.cli.plan_settings import build_settings_lookup
    from watershed.cutover.operations.plan_review import review_plan
    from watershed.topology import compile_path
    from watershed.topology.inventory_json import decode_capability_record
    from watershed.topology.lint_configuration import read_nearest_configuration
    from watershed.topology.loader import read_text_file

    require_writable(output)
    compiled = compile_path(path)
    records = [decode_capability_record(read_text_file(file)) for file in probed]
    review = review_plan(compiled, path, build_settings_lookup(compiled), read_nearest_configuration(path), records)
    if with_spark:
        review = _add_spark_findings(review, path)
    if output is not None:
        write_output_files({output: review.encode()})
    click.echo(review.encode() if form == "json" else "\n".join(review.render()) + "\n", nl=False)
    if review.lint.errors:
        return 1
    return 3 if fail_on_changes and review.has_changes else 0


def _add_spark_findings(review: PlanReview, path: Path) -> PlanReview:
    """The review with what Spark and the registries say of what `transform` does. Raises SparkError, ClusterError."""
    from watershed.spark.session import borrow_spark_session
    from watershed.spark.transform.topology_expressions import add_expression_problems, hash_spark_plans
    from watershed.topology.lint import lint_topology
    from watershed.topology.lint_configuration import read_nearest_configuration
    from watershed.topology.loader import load_topology

    if not any(flow.transform is not None for flow in review.plan.flows):
        return review
    with borrow_spark_session("watershed-plan", {}):
        [judged] = add_expression_problems([load_topology(path)], ask_registries=True)
        plans = hash_spark_plans(review.plan)
    found = lint_topology(judged, review.inventory, read_nearest_configuration(path))
    return replace(review, lint=found, spark_plans=plans)
