"""`topology export`"""

from __future__ import annotations

import json
from pathlib import Path

import click


def _target(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from watershed.topology.interop.export_formats import EXPORT_FORMATS

    names = [each.name for each in EXPORT_FORMATS]
    if value not in names:
        raise click.BadParameter(f"`{value}` is none of {', '.join(names)}", ctx, param)
    return value


@click.command(epilog="Example: topology export topology/examples/active_standby.yaml --as mm2 -o mm2.properties")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--as", "name", required=True, metavar="FORMAT", callback=_target, help="mm2, strimzi, cluster-linking")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here: a file, or a directory.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_context
def export(ctx: click.Context, path: Path, name: str, output: Path | None, form: str, as_json: bool) -> int:
    """Write a topology as another tool's configuration, on stdout.

    On stderr: what that tool cannot do. Importing the result gives the same flows again, but for what is listed.

    Exits 1 when the file has errors (they are listed; `topology lint` frames them), 2 when it cannot be read, 3 when
    nothing could be carried over.
    """
    from watershed.cli.output_files import write_output_files
    from watershed.topology import compile_path
    from watershed.topology.interop.export_formats import export_topology as exported
    from watershed.topology.loader import load_topology

    compile_path(path)  # a file with errors is not written in another language
    topology = load_topology(path).topology
    assert topology is not None, "it compiled"
    result = exported(topology, name)
    if output is not None and output.is_dir():
        if result.files is None:
            raise click.UsageError(f"{output} is a directory, and --as {name} writes one file; name a file")
        write_output_files({output / each: text for each, text in result.files})
    elif output is not None:
        output.write_text(result.text, encoding="utf-8")
    if form == "json" or as_json:
        click.echo(json.dumps(result.to_json(), indent=2, ensure_ascii=False))
        return 0 if _says_something(result.text) else 3
    if output is None:
        click.echo(result.text, nl=False)
    if result.not_carried and not (ctx.obj or {}).get("quiet"):
        click.echo(f"\nNot carried over from {path}:", err=True)
        for each in result.not_carried:
            click.echo(f"  {each}", err=True)
    if not _says_something(result.text):
        click.echo(f"topology: no flow of {path} can be said as {name}", err=True)
        return 3
    return 0


def _says_something(text: str) -> bool:
    """Whether a configuration has more than comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
