"""A topology as `connect-mirror-maker.properties`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watershed.topology.interop.client_security import build_client_properties
from watershed.topology.interop.export_formats import ExportedTopology
from watershed.topology.interop.import_notes import ImportNotes
from watershed.topology.interop.java_properties import escape_property
from watershed.topology.interop.mm2_export_flows import (
    MirrorExportFlow,
    build_export_flows,
    choose_mirror_aliases,
    note_unexported_sections,
)
from watershed.topology.model import Topology
from watershed.topology.plan import PlanCluster

_PROVIDERS = {
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "file": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def write(topology: Topology) -> ExportedTopology:
    """One file for all flows; secrets stay references of config providers."""
    notes = ImportNotes()
    names = choose_mirror_aliases(topology)
    flows = build_export_flows(topology, names, notes)
    for each in flows:
        if each.flow.plan.state != "running":
            why = "this file has no word for a pause: it is written as not enabled, and an import makes no flow of it"
            notes.add_not_carried(f"state of flow {each.flow.id}", why, each.flow.declared)
    note_unexported_sections(topology, notes)
    clusters = [(names[alias], topology.clusters[alias]) for alias in sorted(topology.clusters)]
    connections = {name: _connection(name, cluster, topology, notes) for name, cluster in clusters}
    lines = [
        f"# Exported from the topology {topology.name}. What MirrorMaker cannot do is not in here.",
        f"clusters = {escape_property(', '.join(name for name, _ in clusters))}",
        *_providers(connections),
        "# no herders for pairs without a flow",
        "emit.heartbeats.enabled = false",
    ]
    if any(flow.exactly_once for flow in flows):
        lines += ["dedicated.mode.enable.internal.rest = true", "listeners = http://localhost:8080"]
    for name, settings in connections.items():
        lines += ["", *(_line(f"{name}.{key}", value) for key, value in settings.items())]
        if any(flow.exactly_once and flow.target == name for flow in flows):
            lines.append(f"{name}.exactly.once.source.support = enabled")
    lines += _flows(flows)
    return ExportedTopology("mm2", "\n".join(lines) + "\n", notes.not_carried)


def _flows(flows: Sequence[MirrorExportFlow]) -> Iterator[str]:
    """What all flows agree on stands once, at top level."""
    shared = {
        key: value
        for key, value in (flows[0].config.items() if len(flows) > 1 else ())
        if not key.startswith("consumer.") and all(flow.config.get(key) == value for flow in flows)
    }
    if shared:
        yield ""
        yield from (_line(key, value) for key, value in shared.items())
    for flow in flows:
        route = f"{flow.source}->{flow.target}"
        yield ""
        yield _line(f"{route}.enabled", "true" if flow.enabled else "false")
        yield from (_line(f"{route}.{key}", value) for key, value in flow.config.items() if key not in shared)
    yield from _write_heartbeats(flows)


def _write_heartbeats(flows: Sequence[MirrorExportFlow]) -> Iterator[str]:
    """MirrorMaker writes the heartbeats of a way to its target, and mirrors those that it finds at its source: so the
    way back, which need not copy anything, writes them there."""
    beating = {(flow.source, flow.target) for flow in flows if "emit.heartbeats.enabled" in flow.config}
    for source, target in sorted(beating):
        if (target, source) not in beating:
            yield ""
            yield f"# heartbeats at {source}, which {source}->{target} mirrors"
            yield _line(f"{target}->{source}.emit.heartbeats.enabled", "true")


def _connection(name: str, cluster: PlanCluster, topology: Topology, notes: ImportNotes) -> dict[str, str]:
    out = {"bootstrap.servers": ",".join(cluster.bootstrap)}
    if cluster.security.protocol == "PLAINTEXT":
        return out
    return out | build_client_properties(
        cluster,
        topology,
        notes,
        apart="MirrorMaker wants user and password apart: provide {user} and {password}",
        jaas=f"{name}.sasl.jaas.config",
        key_store="MirrorMaker's PEM key store is one file: put the key and the certificate into it",
    )


def _providers(connections: dict[str, dict[str, str]]) -> list[str]:
    said = "\n".join(value for settings in connections.values() for value in settings.values())
    used = [name for name in _PROVIDERS if f"${{{name}:" in said]
    if not used:
        return []
    return [
        f"config.providers = {','.join(used)}",
        *(f"config.providers.{name}.class = {_PROVIDERS[name]}" for name in used),
    ]


def _line(key: str, value: str) -> str:
    return f"{escape_property(key, key=True)} = {escape_property(value)}".rstrip()
