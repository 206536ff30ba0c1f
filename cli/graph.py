"""`topology graph`"""

from __future__ import annotations

from pathlib import Path

import click

from topology.shell_command import render_shell_command


@click.command(epilog="Example: topology graph topology/examples/hub_and_spoke.yaml --format mermaid")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid", "dot", "svg"]), default="text", show_default=True
)
@click.option("--level", type=click.Choice(["clusters", "topics"]), default="clusters", show_default=True)
def graph(path: Path, form: str, level: str) -> None:
    """Draw the clusters (or topics) and the flows between them; what is on a loop without a guard is marked.

    Files with findings are drawn too, as far as they can be read: a picture often shows what is wrong.
    """
    from topology.errors import UnreadableTopology
    from topology.loader import load_topology
    from topology.picture import render_picture

    loaded = load_topology(path)
    if loaded.topology is None:
        lint = render_shell_command("topology", "lint", path)
        raise UnreadableTopology(f"{path}: {loaded.problems[0].message}; `{lint}` shows where")
    click.echo(render_picture(loaded.topology, form, level))
