"""`topology report`: the planning report of a migration, from an inventory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output_files import require_writable, write_output_files
from cli.quantity_param import RATE_PARAM

if TYPE_CHECKING:
    from topology.inventory import Inventory
    from topology.model import Topology

# what a connection is made from: with a mistake in it, nobody knows where it would go
_CONNECTION = re.compile(r"clusters(\.[^.]+(\.(bootstrap|cluster_id|security)\b.*)?)?")
_MARKDOWN, _HTML = (".md", ".markdown"), (".html", ".htm")


def add_estimate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that the estimates depend on."""
    for option in (
        click.option(
            "--idle-days", type=click.IntRange(0), default=30, show_default=True, help="A topic is idle after so long."
        ),
        click.option("--price-per-gib", type=click.FloatRange(min=0), help="Network cost of a GiB.  [default: none]"),
        click.option(
            "--rate", type=RATE_PARAM, help="What a copy reaches, 60MiB/s.  [default: the quota, else 100MiB/s]"
        ),
    ):
        command = option(command)
    return command


@click.command(epilog="Example: topology report inventory.json orders.yaml -o report.html")
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A .html or .md file; default: Markdown on stdout."
)
@add_estimate_options
def report(
    inventory: Path, path: Path, output: Path | None, rate: int | None, price_per_gib: float | None, idle_days: int
) -> None:
    """Sizes, compatibility, copy times and costs of a topology's flows and waves, from `topology scan`'s inventory."""
    from topology.inventory_json import decode_inventory
    from topology.loader import read_text_file

    find_report_format(output)
    require_writable(output)
    topology, seen = read_scannable_topology(path), decode_inventory(read_text_file(inventory))
    text = render_planning_report(topology, seen, output, rate, price_per_gib, idle_days)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output_files({output: text})


def find_report_format(output: Path | None) -> str:
    """`html` or `markdown`, by the file's name. Raises UsageError."""
    if output is None or output.suffix.lower() in _MARKDOWN:
        return "markdown"
    if output.suffix.lower() in _HTML:
        return "html"
    raise click.UsageError(f"{output}: a report is a .md or a .html file")


def read_scannable_topology(path: Path) -> Topology:
    """The topology at the path, whatever findings it has, as long as it parses and its clusters can be read. Raises
    InvalidTopology otherwise."""
    from topology.errors import InvalidTopology
    from topology.lint import lint_topology
    from topology.loader import load_topology
    from topology.reports.concise import render_concise

    loaded = load_topology(path)
    broken = any(_CONNECTION.fullmatch(problem.path) for problem in loaded.problems)
    if loaded.topology is None or broken:
        result = lint_topology(loaded)
        raise InvalidTopology(render_concise([result]), result.findings)
    return loaded.topology


def render_planning_report(
    topology: Topology,
    inventory: Inventory,
    output: Path | None,
    rate: int | None,
    price_per_gib: float | None,
    idle_days: int,
) -> str:
    """The report as HTML where `output` ends with .html, else as Markdown."""
    from topology.planning import Assumptions, estimate_migration
    from topology.planning.html import render_html_page
    from topology.planning.markdown import render_markdown_page
    from topology.planning.report_page import build_report_page as page

    assumptions = Assumptions(rate=rate, price_per_gib=price_per_gib, idle_days=idle_days)
    found = page(estimate_migration(topology, inventory, assumptions))
    return render_html_page(found) if find_report_format(output) == "html" else render_markdown_page(found)
