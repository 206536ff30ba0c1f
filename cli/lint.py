"""`topology lint`"""

from __future__ import annotations

import sys
from pathlib import Path

import click

RANK = {"error": 0, "warning": 1, "info": 2}


@click.command(epilog="Example: topology lint topology/examples/broken/loop.yaml")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "concise", "json"]), default="text", show_default=True)
@click.option(
    "--fail-on",
    type=click.Choice(list(RANK)),
    default="warning",
    show_default=True,
    help="Least severity that exits 1.",
)
def lint(paths: tuple[Path, ...], form: str, fail_on: str) -> int:
    """Find what is wrong with topology files, offline. A directory stands for the *.yaml files in it.

    Exits 1 with findings, 2 when a path is missing or holds no topology (another kind of document, not text).
    """
    from topology.lint import lint_path
    from topology.load import files_of

    results = [lint_path(file) for path in paths for file in files_of(path)]
    if form == "text":
        from topology.reports.text import text

        click.echo(text(results, colour=sys.stdout.isatty()))
    elif form == "concise":
        from topology.reports.concise import concise

        for result in results:
            if result.findings:
                click.echo(concise(result))
    else:
        from topology.reports.json import json

        click.echo(json(results))
    return int(any(RANK[f.severity] <= RANK[fail_on] for result in results for f in result.findings))
