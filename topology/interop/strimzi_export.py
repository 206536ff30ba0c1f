"""A topology as Strimzi KafkaMirrorMaker2 resources (kafka.strimzi.io/v1): one for each target, since Connect writes
to the cluster that it runs on."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from watershed.topology.interop.export_formats import ExportedTopology
from watershed.topology.interop.import_notes import ImportNotes
from watershed.topology.interop.mm2_export_flows import (
    MirrorExportFlow,
    build_export_flows,
    choose_mirror_aliases,
    note_unexported_sections,
)
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.interop.yaml_document import render_yaml_document
from watershed.topology.model import Topology
from watershed.topology.plan import PlanCluster
from watershed.topology.secret_ref import SecretRef

_API_VERSION = "kafka.strimzi.io/v1"
_CHECKPOINT = (
    "groups",
    "groups.exclude",
    "sync.group.offsets.enabled",
    "sync.group.offsets.interval.seconds",
    "emit.checkpoints.enabled",
    "emit.checkpoints.interval.seconds",
)
_SHARED = ("replication.policy.class", "replication.policy.separator", "offset-syncs.topic.location")
_PATTERNS = {
    "topics": "topicsPattern",
    "topics.exclude": "topicsExcludePattern",
    "groups": "groupsPattern",
    "groups.exclude": "groupsExcludePattern",
}


def write(topology: Topology) -> ExportedTopology:
    """The topology as KafkaMirrorMaker2 resources, one for each target cluster."""
    notes = ImportNotes()
    names = choose_mirror_aliases(topology)
    flows = build_export_flows(topology, names, notes)
    note_unexported_sections(topology, notes)
    for each in flows:
        if "emit.heartbeats.enabled" in each.config:
            place = each.flow.settings.where("compatibility", "mirrormaker", "heartbeats")
            why = "the resource has no heartbeat connector (Strimzi's v1)"
            notes.add_not_carried(f"compatibility.mirrormaker.heartbeats of flow {each.flow.id}", why, place)
    described = {
        names[alias]: _cluster(names[alias], cluster, topology, notes) for alias, cluster in topology.clusters.items()
    }
    resources = [
        _resource(topology, target, [flow for flow in flows if flow.target == target], described)
        for target in sorted({flow.target for flow in flows})
    ]
    head = f"# Exported from the topology {topology.name}. What MirrorMaker cannot do is not in here.\n"
    if not resources:
        head += "# no flow could be carried over\n"
    documents = "".join(f"---\n{render_yaml_document(each)}" for each in resources)
    return ExportedTopology("strimzi", head + documents, notes.not_carried)


def _resource(
    topology: Topology, target: str, flows: list[MirrorExportFlow], described: dict[str, Any]
) -> dict[str, Any]:
    name = f"{topology.name}-to-{build_cluster_alias(target)}"
    config = {"exactly.once.source.support": "enabled"} if flows[0].exactly_once else {}
    return {
        "apiVersion": _API_VERSION,
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "target": {
                **described[target],
                "groupId": name,
                "configStorageTopic": f"__{name}-configs",
                "offsetStorageTopic": f"__{name}-offsets",
                "statusStorageTopic": f"__{name}-status",
                **({"config": config} if config else {}),
            },
            "mirrors": [_mirror(flow, described) for flow in flows],
        },
    }


def _mirror(flow: MirrorExportFlow, described: dict[str, Any]) -> dict[str, Any]:
    config = {key: value for key, value in flow.config.items() if not key.startswith("emit.heartbeats.")}
    tasks = config.pop("tasks.max", None)
    patterns = {name: config.pop(key) for key, name in _PATTERNS.items() if key in config}
    checkpoint = {key: config.pop(key) for key in _CHECKPOINT if key in config}
    checkpoint = {key: config[key] for key in _SHARED if key in config} | checkpoint
    state = {} if flow.enabled else {"state": "paused"}
    source: dict[str, Any] = {**({"tasksMax": int(tasks)} if tasks else {}), **state, "config": config}
    return {
        "source": described[flow.source],
        "sourceConnector": source,
        "checkpointConnector": {**state, "config": checkpoint},
        **patterns,
    }


def _cluster(name: str, cluster: PlanCluster, topology: Topology, notes: ImportNotes) -> dict[str, Any]:
    out: dict[str, Any] = {"alias": name, "bootstrapServers": ",".join(cluster.bootstrap)}
    security = cluster.security
    where = topology.root.where("clusters", cluster.alias, "security")

    def secret(what: str, ref: SecretRef, fallback: str) -> tuple[str, str]:
        """(secret, key in it): what a mounted file says, else a name to be made."""
        parts = PurePosixPath(ref.name).parts if ref.kind == "file" else ()
        held = parts if len(parts) == 2 and parts[0] != "/" else (f"{build_cluster_alias(name)}-{what}", fallback)
        why = f"a Kubernetes secret holds it: create `{held[0]}` with the key `{held[1]}`"
        notes.add_not_carried(f"clusters.{cluster.alias}.security.{what}", why, where)
        return held[0], held[1]

    if security.protocol.endswith("SSL"):
        out["tls"] = {}
        if security.ca is not None:
            held, key = secret("ca", security.ca, "ca.crt")
            out["tls"] = {"trustedCertificates": [{"secretName": held, "certificate": key}]}
    certificate = security.certificate or (security.credentials if security.protocol == "SSL" else None)
    if security.protocol.startswith("SASL"):
        out["authentication"] = _sasl(security.mechanism, security.credentials, secret)
    elif security.protocol == "SSL" and certificate is not None:
        held, key = secret("certificate", certificate, "tls.crt")
        pair = {"secretName": held, "certificate": key, "key": "tls.key"}
        if security.key is not None and security.key.kind == "file":
            pair["key"] = PurePosixPath(security.key.name).name
        out["authentication"] = {"type": "tls", "certificateAndKey": pair}
    return out


def _sasl(mechanism: str | None, credentials: SecretRef | None, secret: Any) -> dict[str, Any]:
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        if credentials is not None:
            secret("credentials", credentials, "jaas")
        return {"type": "custom", "sasl": True, "config": {"sasl.mechanism": mechanism or "GSSAPI"}}
    out: dict[str, Any] = {"type": mechanism.lower(), "username": "FILL-IN"}
    if credentials is not None:
        held, key = secret("credentials", credentials, "password")
        out["passwordSecret"] = {"secretName": held, "password": key}
    return out
