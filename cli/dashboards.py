"""`topology dashboards`"""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="Example: topology dashboards --out /var/lib/grafana/dashboards")
@click.option(
    "--out",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that Grafana provisions dashboards from; files of the same names are replaced.",
)
def dashboards(folder: Path) -> int:
    """Write the dashboards for Grafana: the estate, one flow, one fleet, a migration.

    They suit every file: flows and clusters are chosen on the page. Import them, or let Grafana provision the folder.
    """
    from watershed.cli.output_files import write_output_files
    from watershed.replicator.alerting.dashboard_files import read_dashboards

    folder.mkdir(parents=True, exist_ok=True)
    texts = {folder / name: text for name, text in read_dashboards().items()}
    write_output_files(texts)
    for each in texts:
        click.echo(str(each))
    return 0
