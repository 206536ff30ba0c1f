"""`topology schema`"""

from __future__ import annotations

from importlib import import_module

import click

# option -> module and function of the schema; lazily, because `topology schema` itself is for editors
_SCHEMAS = {
    "inventory": ("watershed.topology.inventory_schema", "build_inventory_schema"),
    "clients": ("watershed.topology.client_inventory_json", "build_client_schema"),
    "usage": ("watershed.topology.usage.sources_file", "build_usage_sources_schema"),
}
_LANGUAGE = ("watershed.topology.language", "build_language_schema")


@click.command(epilog="Example: topology schema > topology.schema.json")
@click.option("--inventory", is_flag=True, help="The schema of inventories (`topology scan`) instead.")
@click.option("--clients", is_flag=True, help="The schema of lists of clients (`topology clients`) instead.")
@click.option("--usage", is_flag=True, help="The schema of files of sources (`topology usage --sources`) instead.")
def schema(**asked: bool) -> None:
    """Print the JSON Schema of topology files, for editors."""
    import json

    names = [name for name, wanted in asked.items() if wanted]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in names)}: name one of them")
    module, function = _SCHEMAS[names[0]] if names else _LANGUAGE
    click.echo(json.dumps(getattr(import_module(module), function)(), indent=2))
