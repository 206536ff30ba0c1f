"""From the path on a command line to a plan and to settings for its clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watershed.clusters.settings import SettingsLookup
    from watershed.topology.plan import Plan


def compile_plan_at(path: Path) -> Plan:
    """Compile a topology file. Raises InvalidTopology or UnreadableTopology."""
    from watershed.topology import compile_path

    return compile_path(path)


def build_settings_lookup(plan: Plan) -> SettingsLookup:
    """Settings of a cluster of the plan by alias, secrets resolved from this process's environment."""
    from watershed.clusters.settings import resolve_connection_settings

    return lambda alias: resolve_connection_settings(plan.cluster(alias))
