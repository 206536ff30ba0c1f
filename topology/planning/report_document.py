"""The planning report as JSON, for programs: the numbers behind the page, without its words."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from watershed.topology.inventory_json import encode_value
from watershed.topology.planning import FlowEstimate, MigrationEstimate
from watershed.topology.planning.client_overview import ClusterClientOverview, WaveClient, list_topic_users
from watershed.topology.planning.cluster_overview import ClusterOverview
from watershed.topology.planning.copy_estimate import CopyEstimate
from watershed.topology.planning.wave_estimate import WaveEstimate

REPORT_SCHEMA_VERSION: Final = 1
REPORT_KIND: Final = "report"


def encode_report(planning: MigrationEstimate) -> str:
    """Sorted keys, newline at the end. Times are milliseconds since 1970, sizes bytes, rates bytes a second, durations
    seconds; null is what is not known, but for `catch_up_s`: there it means never."""
    clients = planning.clients
    waves = clients.waves if clients is not None else {}
    document = {
        "schema": REPORT_SCHEMA_VERSION,
        "kind": REPORT_KIND,
        "topology": planning.topology,
        "taken_ms": planning.taken_ms,
        "unscanned": dict(planning.unscanned),
        "clusters": {each.cluster.alias: _build_cluster(each) for each in planning.clusters},
        "flows": {each.flow.id: _build_flow(each) for each in planning.flows},
        "waves": {each.wave.name: _build_wave(each, waves.get(each.wave.name)) for each in planning.waves},
        "obstacles": [asdict(each) for each in planning.obstacles],
        "clients": None if clients is None else {each.seen.alias: _build_clients(each) for each in clients.clusters},
    }
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def _build_cluster(each: ClusterOverview) -> dict[str, Any]:
    cluster = each.cluster
    return {
        "cluster_id": cluster.cluster_id,
        "kafka": cluster.kafka,
        "brokers": len(cluster.brokers),
        "partitions": each.partitions,
        "size_bytes": each.bytes,
        "rate_bytes": each.written,
        "topics": {
            name: {"partitions": topic.partitions, "size_bytes": topic.size_bytes, "rate_bytes": topic.rate_bytes}
            for name, topic in cluster.topics.items()
        },
        "groups": {
            name: {"type": group.type, "state": group.state, "members": group.members, "topics": sorted(group.offsets)}
            for name, group in cluster.groups.items()
        },
        "not_seen": list(cluster.not_seen),
    }


def _build_flow(each: FlowEstimate) -> dict[str, Any]:
    copy = None if each.estimate is None else _build_copy(each.estimate)
    return {"source": each.flow.source, "target": each.flow.target, "state": each.flow.state, "copy": copy}


def _build_copy(copy: CopyEstimate) -> dict[str, Any]:
    return {
        "topics": copy.topics,
        "partitions": copy.partitions,
        "size_bytes": copy.bytes,
        "topics_of_unknown_size": copy.unsized,
        "rate_bytes": copy.written,
        "copy_rate_bytes": copy.copy_rate,
        "copy_s": copy.copy_s,
        "catch_up_s": copy.catch_up_s,
    }


def _build_wave(each: WaveEstimate, clients: tuple[WaveClient, ...] | None) -> dict[str, Any]:
    return {
        "topics": list(each.wave.topics),
        "missing": list(each.missing),
        "copy": _build_copy(each.estimate),
        "groups": {group.id: None if group.seen is None else {"lag": group.lag} for group in each.groups},
        "bystanders": {group.id: {"topics": list(group.topics), "wave": group.wave} for group in each.bystanders},
        "clients": None if clients is None else [_build_wave_client(client) for client in clients],
    }


def _build_wave_client(each: WaveClient) -> dict[str, Any]:
    return {
        "principal": each.client.principal if each.client else None,
        "client_id": each.client.client_id if each.client else None,
        "producer_id": each.producer.producer_id if each.producer else None,
        "reads": list(each.reads),
        "writes": list(each.writes),
        "last_ms": each.last_ms,
        "application": each.application,
        "moves_with": list(each.moves_with),
        "stranger": each.is_stranger,
    }


def _build_clients(each: ClusterClientOverview) -> dict[str, Any]:
    return {
        "clients": encode_value(each.clients),
        "topics": encode_value(list_topic_users(each)),
        "unknown_producers": encode_value(each.unknown),
        "never_seen": None if each.never_seen is None else list(each.never_seen),
        "observations": encode_value(each.seen.observations),
    }
