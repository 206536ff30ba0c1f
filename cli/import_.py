"""`topology import`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from watershed.topology.interop.import_report import ImportReport


def _formats(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from watershed.topology.interop.import_formats import IMPORT_FORMATS

    names = [each.name for each in IMPORT_FORMATS]
    if value is not None and value not in names:
        raise click.BadParameter(f"`{value}` is none of {', '.join(names)}", ctx, param)
    return value


@click.command("import", epilog="Example: topology import connect-mirror-maker.properties -o topology.yaml")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--from", "wanted", metavar="FORMAT", callback=_formats, help="Its format, instead of telling by content."
)
@click.option(
    "--keep-running",
    "kept",
    metavar="FLOW",
    multiple=True,
    help="A flow that its tool goes on to make: it becomes one of `external_flows`. `all` for all; may be repeated.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the topology here.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_context
def import_(
    ctx: click.Context,
    path: Path,
    wanted: str | None,
    kept: tuple[str, ...],
    output: Path | None,
    form: str,
    as_json: bool,
) -> int:
    """Turn a foreign replication configuration into a topology file, on stdout.

    On stderr: what could not be carried over, what the foreign file does wrong, and what the linter says about the
    topology that came out. Secrets never come over. FILE may be a directory. docs/interop.md lists the formats.

    Exits 0 when a topology came out without errors, 1 with errors, 2 when the file is none of the formats.
    """
    from watershed.topology.interop.import_formats import import_path
    from watershed.topology.interop.import_report import build_import_report
    from watershed.topology.interop.kept_flows import keep_flows_running

    quiet = bool((ctx.obj or {}).get("quiet"))
    imported = keep_flows_running(import_path(path, wanted), kept)
    report = build_import_report(imported, str(output) if output is not None else "topology.yaml")
    if output is not None:
        output.write_text(report.text, encoding="utf-8")
    if form == "json" or as_json:
        click.echo(report.to_json())
    elif output is None:
        click.echo(report.text, nl=False)
    if not quiet and not (form == "json" or as_json):
        _explain(report, path, output)
    return int(report.errors > 0)


def _explain(report: ImportReport, path: Path, output: Path | None) -> None:
    from watershed.topology.interop.import_report import (
        render_import_findings,
        render_lint_findings,
        render_not_carried,
    )

    where, result = ("the topology above", "FILE") if output is None else (str(output), str(output))
    for title, block in (
        (f"Not carried over from {path}:", render_not_carried(report.not_carried)),
        (f"What {path} does wrong:", render_import_findings(report.source)),
        (f"What the linter says about {where}:", render_lint_findings(report, result)),
    ):
        if block:
            click.echo(f"\n{title}", err=True)
            for line in block:
                click.echo(f"  {line}", err=True)
    if not (report.not_carried or report.source or report.result):
        click.echo("everything was carried over, and nothing is wrong with it", err=True)
