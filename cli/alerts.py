"""`topology alerts`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from watershed.replicator.alerting.rule_group import RuleFileFormat


@click.command(epilog="Example: topology alerts orders.yaml --out /etc/prometheus/rules")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--out", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write a file into this folder."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["prometheus", "operator"]),
    default="prometheus",
    show_default=True,
    help="A rule file, or a resource PrometheusRule for the Prometheus operator.",
)
@click.option(
    "--runbooks",
    default="docs/runbooks.md",
    show_default=True,
    metavar="URL",
    help="Where your people read docs/runbooks.md: alerts link to its sections.",
)
def alerts(path: Path, folder: Path | None, form: RuleFileFormat, runbooks: str) -> int:
    """Write the alert rules of a file for Prometheus: its budgets (`slo`), and what else a person should hear of.

    Asks no cluster. The rules read what `topology exporter` serves. The page docs/alerts.md lists the alerts.

    Exits 1 when the file has errors, 2 when it cannot be read, 3 when it has no flow to watch.
    """
    from watershed.cli.output_files import write_output_files
    from watershed.replicator.alerting.alert_rules import build_rule_groups
    from watershed.replicator.alerting.rule_group import derive_resource_name, render_rule_file
    from watershed.topology import compile_path
    from watershed.topology.loader import load_topology

    compile_path(path)  # a file with errors promises nothing that could be watched
    topology = load_topology(path).topology
    assert topology is not None, "it compiled"
    groups = build_rule_groups(topology, path, runbooks)
    if not groups:
        click.echo(f"topology: no flow of {path} is copied by Watershed; there is nothing to watch", err=True)
        return 3
    text = render_rule_file(groups, topology.name, form)
    if folder is None:
        click.echo(text, nl=False)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{derive_resource_name(topology.name)}.rules.yaml"
    write_output_files({written: text})
    click.echo(str(written))
    return 0
