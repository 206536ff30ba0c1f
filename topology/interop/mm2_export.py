"""A topology as `connect-mirror-maker.properties`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topology.interop.export_formats import ExportedTopology
from topology.interop.import_notes import ImportNotes
from topology.interop.java_properties import escape_property
from topology.interop.mm2_export_flows import (
    MirrorExportFlow,
    build_export_flows,
    choose_mirror_aliases,
    note_unexported_sections,
)
from topology.model import Topology
from topology.plan import PlanCluster
from topology.secret_ref import SecretRef

_PROVIDERS = {
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "file": "org.apache.kafka.common.config.provider.FileConfigProvider",
}
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def write(topology: Topology) -> ExportedTopology:
    """One file for all flows; secrets stay references of config providers."""
    notes = ImportNotes()
    names = choose_mirror_aliases(topology)
    flows = build_export_flows(topology, names, notes)
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


def _connection(name: str, cluster: PlanCluster, topology: Topology, notes: ImportNotes) -> dict[str, str]:
    security = cluster.security
    out = {"bootstrap.servers": ",".join(cluster.bootstrap)}
    if security.protocol == "PLAINTEXT":
        return out
    out["security.protocol"] = security.protocol
    where = topology.root.where("clusters", cluster.alias, "security")
    if security.protocol.startswith("SASL"):
        if security.mechanism is not None:
            out["sasl.mechanism"] = security.mechanism
        module = _MODULES.get(security.mechanism or "")
        if security.credentials is not None and module is not None:
            user, password = _halves(security.credentials)
            out["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
            why = f"MirrorMaker wants user and password apart: provide {user} and {password}"
            notes.add_not_carried(f"clusters.{cluster.alias}.security.credentials", why, where)
        elif security.credentials is not None:
            why = f"write `{name}.sasl.jaas.config` for {security.mechanism or 'the mechanism'} yourself"
            notes.add_not_carried(f"clusters.{cluster.alias}.security.credentials", why, where)
    certificate = security.certificate
    if security.protocol == "SSL" and certificate is None:
        certificate = security.credentials
    for store, ref in (("ssl.truststore", security.ca), ("ssl.keystore", certificate)):
        if ref is not None:
            out[f"{store}.type"] = "PEM"
            out[f"{store}.location"] = ref.name if ref.kind == "file" else f"${{env:{_variable(ref)}}}"
    if security.key is not None:
        why = "MirrorMaker's PEM key store is one file: put the key and the certificate into it"
        notes.add_not_carried(f"clusters.{cluster.alias}.security.key", why, where)
    return out


def _halves(ref: SecretRef) -> tuple[str, str]:
    if ref.kind == "file":
        return f"${{file:{ref.name}:username}}", f"${{file:{ref.name}:password}}"
    return f"${{env:{_variable(ref)}_USERNAME}}", f"${{env:{_variable(ref)}_PASSWORD}}"


def _variable(ref: SecretRef) -> str:
    return ref.name if ref.kind == "env" else f"AIRFLOW_CONN_{ref.name.upper()}"


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
