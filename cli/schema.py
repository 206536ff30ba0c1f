"""`topology schema`"""

from __future__ import annotations

import click


@click.command(epilog="Example: topology schema > topology.schema.json")
@click.option("--inventory", is_flag=True, help="The schema of inventories (`topology scan`) instead.")
@click.option("--usage", is_flag=True, help="The schema of files of sources (`topology usage --sources`) instead.")
def schema(inventory: bool, usage: bool) -> None:
    """Print the JSON Schema of topology files, for editors."""
    import json

    if inventory:
        from topology.inventory_schema import build_inventory_schema

        click.echo(json.dumps(build_inventory_schema(), indent=2))
        return
    if usage:
        from topology.usage.sources_file import build_usage_sources_schema

        click.echo(json.dumps(build_usage_sources_schema(), indent=2))
        return
    from topology.language import build_language_schema

    click.echo(json.dumps(build_language_schema(), indent=2))
