"""`topology compile`"""

from __future__ import annotations

from pathlib import Path

import click


@click.command("compile", epilog="Example: topology compile topology/examples/chain.yaml -o plan.json")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here, not to stdout.")
def compile_(path: Path, output: Path | None) -> None:
    """Print the plan as JSON: clusters, flows, migration, proofs and the content hash.

    Exits 1 when the file has errors (they are listed; `topology lint` frames them), 2 when it cannot be read.
    """
    from watershed.topology import compile_path
    from watershed.topology.plan import encode_plan

    plan = compile_path(path)
    if output is None:
        click.echo(encode_plan(plan), nl=False)
    else:
        output.write_text(encode_plan(plan), encoding="utf-8")
        click.echo(f"{output}: {len(plan.flows)} flows, {plan.hash}", err=True)
