"""Flows that one place of the file made: a pattern of a thousand flows is one finding, not a thousand."""

from __future__ import annotations

from collections.abc import Iterable

from watershed.topology.finding import FileSpan
from watershed.topology.model import Flow
from watershed.topology.rules.finding_text import render_some_names


def group_flows_by_declaration(flows: Iterable[Flow]) -> list[tuple[Flow, ...]]:
    """Groups of flows with the same declaration, in the order of their first ids."""
    groups: dict[FileSpan, list[Flow]] = {}
    for flow in sorted(flows, key=lambda each: each.id):
        groups.setdefault(flow.declared, []).append(flow)
    return [tuple(group) for group in groups.values()]


def render_flow_names(flows: Iterable[Flow]) -> str:
    """`flow a-to-b`, or `flows a-to-b, a-to-c and 8 more`."""
    ids = [flow.id for flow in flows]
    return f"flow {ids[0]}" if len(ids) == 1 else f"flows {render_some_names(ids)}"
