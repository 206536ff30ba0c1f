"""`topology usage`: how much the clusters were used, what target and fleet need for it, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.output_files import require_writable, write_output_files
from watershed.cli.quantity_param import DURATION_PARAM
from watershed.cli.report import find_report_format, read_scannable_topology

if TYPE_CHECKING:
    from watershed.topology.model import Topology
    from watershed.topology.usage.estimate import UsageEstimate
    from watershed.topology.usage.history import ClusterHistory
    from watershed.topology.usage.sources_file import UsageSources

_SHORTEST_INTERVAL_MS = 60_000


@click.command(epilog="Example: topology usage orders.yaml --sources usage.yaml --since 30d --report usage.html")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--sources",
    "sources_path",
    required=True,
    type=click.Path(path_type=Path),
    help="Where each history is, and prices.",
)
@click.option("--since", type=DURATION_PARAM, default="30d", show_default=True, help="How far back.")
@click.option(
    "--interval", type=DURATION_PARAM, default="5m", show_default=True, help="Values are means of so long; at least 1m."
)
@click.option(
    "--sample", type=DURATION_PARAM, default="30s", show_default=True, help="Between two readings of exporters' pages."
)
@click.option(
    "--inventory", type=click.Path(path_type=Path), help="Of `topology scan`: sizes that a history does not have."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the JSON document here.")
@click.option("--report", "page", type=click.Path(path_type=Path), help="A report for people: a .html or .md file.")
@click.pass_context
def usage(
    context: click.Context,
    path: Path,
    sources_path: Path,
    since: int,
    interval: int,
    sample: int,
    inventory: Path | None,
    output: Path | None,
    page: Path | None,
) -> int:
    """Read the history of the clusters' use, and size target, fleet, lag and money by it.

    Sources: Prometheus, JMX exporters, CloudWatch and Cost Explorer, Confluent's Metrics API. Nothing is changed
    anywhere. What is missing is said with the period, and never taken for zero. Without -o and --report: Markdown on
    stdout. Exits 3 when a source gave no history.
    """
    from watershed.topology.inventory_json import decode_inventory
    from watershed.topology.loader import read_text_file
    from watershed.topology.usage.estimate import estimate_usage
    from watershed.topology.usage.sources_file import parse_usage_sources

    for file in (output, page):
        require_writable(file)
    find_report_format(page, has_json=False)
    _require_intervals(since, interval, sample)
    topology = read_scannable_topology(path)
    sources = parse_usage_sources(read_text_file(sources_path, 1 << 20), str(sources_path))
    _require_known(topology, sources, sources_path)
    scanned = None if inventory is None else decode_inventory(read_text_file(inventory))
    histories = _read(sources, since // 1000, interval // 1000, sample // 1000)
    estimate = estimate_usage(topology, sources, histories, scanned)
    _write(estimate, output, page)
    return _tell_failures(context, histories)


def _require_intervals(since_ms: int, interval_ms: int, sample_ms: int) -> None:
    if interval_ms < _SHORTEST_INTERVAL_MS or interval_ms % 1000:
        raise click.UsageError("--interval: whole seconds, at least `1m`")
    if since_ms < interval_ms:
        raise click.UsageError("--since is shorter than --interval: there would be no value")
    if sample_ms < 1000 or sample_ms % 1000:
        raise click.UsageError("--sample: whole seconds, at least `1s`")


def _require_known(topology: Topology, sources: UsageSources, path: Path) -> None:
    for alias in sources.clusters:
        if alias not in topology.clusters:
            known = ", ".join(sorted(topology.clusters))
            raise click.UsageError(f"{path} has a cluster `{alias}`, {topology.file} has not; it has {known}")


def _read(sources: UsageSources, since_s: int, interval_s: int, sample_s: int) -> dict[str, ClusterHistory]:
    from watershed.clusters.usage.history_reading import HistoryRequest, read_histories

    return read_histories(sources.clusters, HistoryRequest(since_s, interval_s, sample_s))


def _write(estimate: UsageEstimate, output: Path | None, page: Path | None) -> None:
    from watershed.topology.planning.html import render_html_page
    from watershed.topology.planning.markdown import render_markdown_page
    from watershed.topology.usage.usage_json import encode_usage
    from watershed.topology.usage.usage_page import build_usage_page

    blocks = build_usage_page(estimate)
    files = {} if output is None else {output: encode_usage(estimate)}
    if page is not None:
        render = render_html_page if find_report_format(page, has_json=False) == "html" else render_markdown_page
        files[page] = render(blocks)
    write_output_files(files)
    if not files:
        click.echo(render_markdown_page(blocks), nl=False)


def _tell_failures(context: click.Context, histories: dict[str, ClusterHistory]) -> int:
    from watershed.topology.rounded_amounts import render_counted_noun

    failed = [each for each in histories.values() if each.failure]
    for each in failed:
        click.echo(f"no history of {each.alias}: {each.failure}", err=True)
    if not (context.obj and context.obj.get("quiet")):
        for each in histories.values():
            if not each.failure:
                series = render_counted_noun(len(each.list_topics()), "topic")
                click.echo(f"{each.alias}: {series}, from {each.source}", err=True)
    return 3 if failed else 0
