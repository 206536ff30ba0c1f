"""`topology schema`"""

from __future__ import annotations

import click


@click.command(epilog="Example: topology schema > topology.schema.json")
@click.option("--inventory", is_flag=True, help="The schema of inventories (`topology scan`) instead.")
@click.option("--clients", is_flag=True, help="The schema of lists of clients (`topology clients`) instead.")
def schema(inventory: bool, clients: bool) -> None:
    """Print the JSON Schema of topology files, for editors."""
    import json

    if inventory and clients:
        raise click.UsageError("--inventory and --clients: name one of them")
    if clients:
        from topology.client_inventory_json import build_client_schema

        click.echo(json.dumps(build_client_schema(), indent=2))
        return
    if inventory:
        from topology.inventory_schema import build_inventory_schema

        click.echo(json.dumps(build_inventory_schema(), indent=2))
        return
    from topology.language import build_language_schema

    click.echo(json.dumps(build_language_schema(), indent=2))
