"""Flows of a foreign file that its tool goes on to make: they become `external_flows` of the topology."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from watershed.topology.errors import UnreadableTopology
from watershed.topology.external_flows import REPLICATOR_HEADER, TOOL_NAMES, ExternalTool
from watershed.topology.interop.imported_topology import ImportedFlow, ImportedTopology

ALL_FLOWS: Final = "all"
_TOOLS: Final[Mapping[str, ExternalTool]] = {
    "mm2": "mirrormaker2",
    "strimzi": "mirrormaker2",
    "connect": "mirrormaker2",
    "replicator": "replicator",
    "terraform": "cluster_link",
    "cluster-linking": "cluster_link",
}


def keep_flows_running(imported: ImportedTopology, wanted: Collection[str]) -> ImportedTopology:
    """The same with these flows kept by the tool that makes them now. wanted: ids of flows, or `all`. Raises
    UnreadableTopology for an id that the file has no flow of."""
    known = {flow.id for flow in imported.flows}
    if unknown := sorted(set(wanted) - known - {ALL_FLOWS}):
        raise UnreadableTopology(
            f"{imported.file}: --keep-running {unknown[0]}: the file has no such flow; it has "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    kept = tuple(flow for flow in imported.flows if ALL_FLOWS in wanted or flow.id in wanted)
    return replace(imported, flows=tuple(flow for flow in imported.flows if flow not in kept), kept=kept)


def render_kept_flows(
    imported: ImportedTopology,
    render_topics: Callable[[ImportedFlow], Iterator[str]],
    render_settings: Callable[[Mapping[str, Any], str], Iterator[str]],
) -> Iterator[str]:
    """The section `external_flows`; nothing where no flow is kept. Callers hand over how topics and settings are
    written in a flow."""
    if not imported.kept:
        return
    tool = _TOOLS[imported.format]
    yield from ("", f"external_flows:   # {TOOL_NAMES[tool]} goes on to make these; we never do")
    for flow in sorted(imported.kept, key=lambda each: each.id):
        yield f"  - name: {tool.replace('_', '-')}-{flow.id}"
        yield f"    tool: {tool}"
        yield f"    source: {flow.source}"
        yield f"    target: {flow.target}"
        yield from render_topics(flow)
        yield from render_settings(_translate_settings(flow, imported, tool), "    ")


def _translate_settings(flow: ImportedFlow, imported: ImportedTopology, tool: ExternalTool) -> dict[str, Any]:
    """What an external flow says of a flow's settings: its names always, since tools have defaults of their own."""
    settings = {**imported.defaults, **flow.settings}
    found: dict[str, Any] = {"naming": settings.get("naming", {"policy": "identity"})}
    if settings.get("state") == "paused":
        found["enabled"] = False
    if tool == "replicator" and settings.get("provenance", {}).get("guard") == "producer_id":
        found["marks_with"] = REPLICATOR_HEADER
    return found
