"""`topology graph`"""

from __future__ import annotations

from pathlib import Path

import click

from watershed.topology.shell_command import render_shell_command

_BY_SUFFIX = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}


@click.command(epilog="Example: topology graph topology/examples/hub_and_spoke.yaml --format mermaid")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "dot", "svg"]),
    help="How to draw.  [default: as the file's name ends (.svg, .dot, .mmd), else text]",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the picture here, not to stdout.")
@click.option("--level", type=click.Choice(["clusters", "topics"]), default="clusters", show_default=True)
def graph(path: Path, form: str | None, output: Path | None, level: str) -> None:
    """Draw the clusters (or topics) and the flows between them; what is on a loop without a guard is marked.

    Files with findings are drawn too, as far as they can be read: a picture often shows what is wrong.
    """
    from watershed.cli.output_files import require_writable, write_output_files
    from watershed.topology.errors import UnreadableTopology
    from watershed.topology.loader import load_topology
    from watershed.topology.picture import render_picture

    require_writable(output)
    loaded = load_topology(path)
    if loaded.topology is None:
        lint = render_shell_command("topology", "lint", path)
        raise UnreadableTopology(f"{path}: {loaded.problems[0].message}; `{lint}` shows where")
    form = form or _BY_SUFFIX.get(output.suffix.lower() if output is not None else "", "text")
    picture = render_picture(loaded.topology, form, level)
    if output is None:
        click.echo(picture)
    else:
        write_output_files({output: f"{picture}\n"})
