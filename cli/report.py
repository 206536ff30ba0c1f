"""`topology report`: the planning report of a migration, from an inventory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.output_files import require_writable, write_output_files
from watershed.cli.quantity_param import RATE_PARAM

if TYPE_CHECKING:
    from watershed.topology.client_inventory import ClientInventory
    from watershed.topology.inventory import Inventory
    from watershed.topology.model import Topology

# what a connection is made from: with a mistake in it, nobody knows where it would go
_CONNECTION = re.compile(r"clusters(\.[^.]+(\.(bootstrap|cluster_id|security)\b.*)?)?")
_FORMATS = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".json": "json"}


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
    "-o", "--output", type=click.Path(path_type=Path), help="A .html, .md or .json file; default: Markdown on stdout."
)
@click.option("--clients", "listed", type=click.Path(path_type=Path), help="Also who uses them (`topology clients`).")
@add_estimate_options
def report(
    inventory: Path,
    path: Path,
    output: Path | None,
    listed: Path | None,
    rate: int | None,
    price_per_gib: float | None,
    idle_days: int,
) -> None:
    """Sizes, compatibility, copy times and costs of a topology's flows and waves, from `topology scan`'s inventory; and
    which clients move with which wave, from the list of `topology clients`."""
    from watershed.topology.client_inventory_json import decode_client_inventory
    from watershed.topology.inventory_json import decode_inventory
    from watershed.topology.loader import read_text_file

    find_report_format(output)
    require_writable(output)
    topology, seen = read_scannable_topology(path), decode_inventory(read_text_file(inventory))
    clients = None if listed is None else decode_client_inventory(read_text_file(listed))
    text = render_planning_report(topology, seen, output, rate, price_per_gib, idle_days, clients)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output_files({output: text})


def find_report_format(output: Path | None, *, has_json: bool = True) -> str:
    """`html`, `json` or `markdown`, by the file's name; has_json: whether there is the second. Raises UsageError."""
    form = "markdown" if output is None else _FORMATS.get(output.suffix.lower())
    if form is None or (form == "json" and not has_json):
        kinds = "a .html, a .md or a .json file" if has_json else "a .html or a .md file"
        raise click.UsageError(f"{output}: a report is {kinds}")
    return form


def read_scannable_topology(path: Path) -> Topology:
    """The topology at the path, whatever findings it has, as long as it parses and its clusters can be read. Raises
    InvalidTopology otherwise."""
    from watershed.topology.errors import InvalidTopology
    from watershed.topology.lint import lint_topology
    from watershed.topology.loader import load_topology
    from watershed.topology.reports.concise import render_concise

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
    clients: ClientInventory | None = None,
) -> str:
    """The report in the format that the name of `output` asks for; Markdown without one."""
    from watershed.topology.planning import Assumptions, estimate_migration
    from watershed.topology.planning.html import render_html_page
    from watershed.topology.planning.markdown import render_markdown_page
    from watershed.topology.planning.report_document import encode_report
    from watershed.topology.planning.report_page import build_report_page

    assumptions = Assumptions(rate=rate, price_per_gib=price_per_gib, idle_days=idle_days)
    found = estimate_migration(topology, inventory, assumptions, clients)
    form = find_report_format(output)
    if form == "json":
        return encode_report(found)
    page = build_report_page(found)
    return render_html_page(page) if form == "html" else render_markdown_page(page)
