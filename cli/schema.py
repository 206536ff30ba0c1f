"""`topology schema`"""

from __future__ import annotations

import click


@click.command(epilog="Example: topology schema > topology.schema.json")
def schema() -> None:
    """Print the JSON Schema of topology files, for editors."""
    import json

    from topology.language import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
