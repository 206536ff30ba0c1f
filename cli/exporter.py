"""`topology exporter`: metrics of whole topologies, from control topics alone."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from watershed.cli.plan_settings import compile_plan_at
from watershed.cli.worker import parse_metrics_address

if TYPE_CHECKING:
    from watershed.topology.plan import Plan


@click.command(epilog="Example: topology exporter orders.yaml --listen 127.0.0.1:9465")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--listen", metavar="HOST:PORT", required=True, help="Answer Prometheus there; also /health/….")
@click.option(
    "--partition-series",
    type=click.IntRange(0, 100_000),
    default=1_000,
    show_default=True,
    help="Series of single partitions are served for up to so many partitions; flows have theirs always.",
)
@click.option(
    "--proofs",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder with evidence of proofs (`topology verify -o`), looked through every 30 s. May be repeated. One "
    "that is not there yet is told, and looked for again.",
)
@click.option("--log", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def exporter(
    paths: tuple[Path, ...],
    listen: str,
    partition_series: int,
    proofs: tuple[Path, ...],
    form: Literal["text", "json"],
) -> int:
    """Serve the metrics of all flows, fleets, proofs and migrations of the files until stopped, whatever hosts the
    workers.

    It reads the control topics of the target clusters, and nothing else: workers need not be reachable. A cluster
    that is down is told by `watershed_cluster_up`; the others go on. SIGTERM or Ctrl-C end it.

    http://HOST:PORT/metrics answers Prometheus, /health/live and /health/ready whoever watches the process. The names
    are in docs/metrics.md.
    """
    plans = [compile_plan_at(path) for path in paths]
    _require_distinct(plans)
    host, port = parse_metrics_address(listen, "--listen")

    from watershed.cli.estate_collector import EstateCollector
    from watershed.replicator.worker.log_format import configure_logging
    from watershed.replicator.worker.metrics_endpoint import serve_endpoint

    configure_logging(form=form)
    for folder in proofs:
        if not folder.is_dir():
            click.echo(f"note: {folder} is not there yet: no proof is known from it until it is", err=True)
    collector = EstateCollector(plans, partition_series, proofs)
    server, thread = serve_endpoint(collector, collector.read_health, host, port)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    click.echo(f"metrics at http://{host}:{server.server_port}/metrics", err=True)
    try:
        collector.run(stop)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 0


def _require_distinct(plans: Sequence[Plan]) -> None:
    """Raises click.UsageError where one label would mean two things."""
    flows = Counter(flow.id for plan in plans for flow in plan.flows)
    twice = sorted(flow for flow, count in flows.items() if count > 1)
    if twice:
        raise click.UsageError(
            f"the flow {twice[0]} is in several files, and metrics name flows by their id; run an exporter for each"
        )
    names = Counter(plan.topology for plan in plans)
    same = sorted(name for name, count in names.items() if count > 1)
    if same:
        raise click.UsageError(
            f"several files are the topology {same[0]}, and metrics name topologies; run an exporter for each"
        )
    targets = {plan.cluster(flow.target) for plan in plans for flow in plan.flows}
    aliases = Counter(cluster.alias for cluster in targets)
    other = sorted(alias for alias, count in aliases.items() if count > 1)
    if other:
        raise click.UsageError(
            f"the files declare the cluster {other[0]} in different ways; run an exporter for each, or declare it alike"
        )
