"""`topology report`: the planning report of a migration, from an inventory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output import writable, write_all
from cli.quantity import RATE

if TYPE_CHECKING:
    from topology.inventory import Inventory
    from topology.model import Topology

# what a connection is made from: with a mistake in it, nobody knows where it would go
_CONNECTION = re.compile(r"clusters(\.[^.]+(\.(bootstrap|cluster_id|security)\b.*)?)?")
_MARKDOWN, _HTML = (".md", ".markdown"), (".html", ".htm")


def estimates(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that the estimates depend on."""
    for option in (
        click.option(
            "--idle-days", type=click.IntRange(0), default=30, show_default=True, help="A topic is idle after so long."
        ),
        click.option("--price-per-gib", type=click.FloatRange(min=0), help="Network cost of a GiB.  [default: none]"),
        click.option("--rate", type=RATE, help="What a copy reaches, 60MiB/s.  [default: the quota, else 100MiB/s]"),
    ):
        command = option(command)
    return command


@click.command(epilog="Example: topology report inventory.json orders.yaml -o report.html")
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A .html or .md file; default: Markdown on stdout."
)
@estimates
def report(
    inventory: Path, path: Path, output: Path | None, rate: int | None, price_per_gib: float | None, idle_days: int
) -> None:
    """Sizes, compatibility, copy times and costs of a topology's flows and waves, from `topology scan`'s inventory."""
    from topology.inventory_json import inventory_from_json
    from topology.load import read_file

    form(output)
    writable(output)
    topology, seen = readable(path), inventory_from_json(read_file(inventory))
    text = rendered(topology, seen, output, rate, price_per_gib, idle_days)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_all({output: text})


def form(output: Path | None) -> str:
    """`html` or `markdown`, by the file's name. Raises UsageError."""
    if output is None or output.suffix.lower() in _MARKDOWN:
        return "markdown"
    if output.suffix.lower() in _HTML:
        return "html"
    raise click.UsageError(f"{output}: a report is a .md or a .html file")


def readable(path: Path) -> Topology:
    """The topology at the path, whatever findings it has, as long as it parses and its clusters can be read. Raises
    InvalidTopology otherwise."""
    from topology.errors import InvalidTopology
    from topology.lint import lint_loaded
    from topology.load import load_path
    from topology.reports.concise import concise

    loaded = load_path(path)
    broken = any(_CONNECTION.fullmatch(problem.path) for problem in loaded.problems)
    if loaded.topology is None or broken:
        result = lint_loaded(loaded)
        raise InvalidTopology(concise([result]), result.findings)
    return loaded.topology


def rendered(
    topology: Topology,
    inventory: Inventory,
    output: Path | None,
    rate: int | None,
    price_per_gib: float | None,
    idle_days: int,
) -> str:
    from topology.planning import Assumptions, planning
    from topology.planning.html import html
    from topology.planning.markdown import markdown
    from topology.planning.report import report as page

    assumptions = Assumptions(rate=rate, price_per_gib=price_per_gib, idle_days=idle_days)
    found = page(planning(topology, inventory, assumptions))
    return html(found) if form(output) == "html" else markdown(found)
