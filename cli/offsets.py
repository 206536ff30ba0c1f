"""`topology offsets`: exact translation between source and target."""

from __future__ import annotations

import click

from watershed.cli.offsets_groups import groups, reset_group, sync
from watershed.cli.offsets_map import show_map, translate


@click.group()
def offsets() -> None:
    """Translate offsets exactly, either way; see, carry over and reset positions of groups."""


offsets.add_command(translate)
offsets.add_command(show_map)
offsets.add_command(groups)
offsets.add_command(sync)
offsets.add_command(reset_group)
