"""`topology lint`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from watershed.topology.inventory import Inventory
    from watershed.topology.rule import Profile

_SEVERITY_RANK = {"error": 0, "warning": 1, "info": 2}
_FORMATS = ("text", "concise", "json", "github", "sarif", "junit")


@click.command(epilog="Example: topology lint topology/examples/broken/loop.yaml")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True)
@click.option(
    "--fail-on",
    type=click.Choice(list(_SEVERITY_RANK)),
    default="warning",
    show_default=True,
    help="Least severity that exits 1.",
)
@click.option(
    "--inventory", type=click.Path(path_type=Path), help="What the clusters hold (`topology scan` writes it)."
)
@click.option(
    "--capabilities",
    "probed",
    multiple=True,
    type=click.Path(path_type=Path),
    help="With --inventory: what `topology probe` saw a cluster do; may be repeated.",
)
@click.option("--baseline", type=click.Path(path_type=Path), help="A report (--format json) whose findings are known.")
@click.option(
    "--config", type=click.Path(path_type=Path), help="topology.lint.yaml; default: the nearest above a file."
)
@click.option("--spark", "with_spark", is_flag=True, help="Have Spark judge the expressions of `transform`, too.")
@click.option(
    "--registries",
    "ask_registries",
    is_flag=True,
    help="With --spark: compare `transform.schema` with the newest versions in the schema registries of sources.",
)
@click.option("--profile", type=click.Choice(["regular", "strict", "audit"]), help="How much to ask of a file.")
def lint(
    paths: tuple[Path, ...],
    form: str,
    fail_on: str,
    inventory: Path | None,
    probed: tuple[Path, ...],
    baseline: Path | None,
    config: Path | None,
    with_spark: bool,
    ask_registries: bool,
    profile: Profile | None,
) -> int:
    """Find what is wrong with topology files, offline but for --registries. A directory stands for the *.yaml files in
    it; those that say the same `metadata.name` form one topology.

    Exits 1 with findings, 2 when a path is missing or holds no topology (another kind of document, not text); the
    other files are linted all the same; 2 also when Spark does not start or a registry does not answer.
    """
    from dataclasses import replace

    from watershed.topology.baseline import read_baseline
    from watershed.topology.lint import lint_topology
    from watershed.topology.lint_configuration import read_lint_configuration, read_nearest_configuration
    from watershed.topology.loader import load_readable_topologies
    from watershed.topology.reports import render_lint_report

    if ask_registries and not with_spark:
        raise click.UsageError("--registries goes with --spark: Spark says what the types in `schema` are")
    seen = _read_inventory(inventory, probed)
    known = read_baseline(baseline) if baseline is not None else frozenset()
    files, unreadable = [], []
    for path in paths:
        found, errors = load_readable_topologies(path)
        files += [(path, loaded) for loaded in found]
        unreadable += errors
    if with_spark:
        from watershed.spark.transform.topology_expressions import add_expression_problems

        judged = add_expression_problems([loaded for _, loaded in files], ask_registries=ask_registries)
        files = [(path, loaded) for (path, _), loaded in zip(files, judged, strict=True)]
    topologies = [loaded.topology for _, loaded in files if loaded.topology is not None]
    results = []
    for path, loaded in files:
        configuration = read_lint_configuration(config) if config is not None else read_nearest_configuration(path)
        if profile is not None:
            configuration = replace(configuration, profile=profile)
        others = [each for each in topologies if each is not loaded.topology]
        results.append(lint_topology(loaded, seen, configuration, known, others))
    if results or form not in ("text", "concise"):
        click.echo(render_lint_report(results, form, colour=sys.stdout.isatty()), nl=False)
    for error in unreadable:  # what can be judged is; the others are named, and the exit code says so
        click.echo(f"topology: {error}", err=True)
    if unreadable:
        return 2
    return int(
        any(_SEVERITY_RANK[f.severity] <= _SEVERITY_RANK[fail_on] for result in results for f in result.findings)
    )


def _read_inventory(inventory: Path | None, probed: tuple[Path, ...]) -> Inventory | None:
    """The inventory, with what probes tried. Raises UsageError for probes without one, UnreadableInventory."""
    if inventory is None:
        if probed:
            raise click.UsageError("--capabilities needs --inventory: a probe says nothing of the other clusters")
        return None
    from watershed.topology.inventory_json import decode_capability_record, decode_inventory
    from watershed.topology.loader import read_text_file

    seen = decode_inventory(read_text_file(inventory))
    for file in probed:
        seen = seen.with_probe(decode_capability_record(read_text_file(file)))
    return seen
