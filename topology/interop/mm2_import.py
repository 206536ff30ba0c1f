"""MirrorMaker 2's own file, `connect-mirror-maker.properties`, with all its layers.

The connectors of `a->b` read three layers, a later one wins: top-level connector settings; `a.` and `b.` (connection
settings and `a.consumer.…`); `a->b.…`. For a client setting `source.consumer.` wins over `consumer.`. A setting in a
layer that does not read it has no effect, and MirrorMaker does not report it. Source: apache/kafka
MirrorMakerConfig.java, MirrorConnectorConfig.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan
from watershed.topology.interop import mm2_settings
from watershed.topology.interop.bootstrap_servers import parse_bootstrap_servers
from watershed.topology.interop.client_security import build_client_security, check_literal_secrets
from watershed.topology.interop.import_checks import (
    check_cluster_aliases,
    check_imported_clusters,
    check_mirror_pairs,
    check_replication_factor,
    find_reachable_clusters,
)
from watershed.topology.interop.import_formats import ForeignDocument
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, is_exactly_true, parse_java_boolean
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedTopology
from watershed.topology.interop.java_properties import parse_properties
from watershed.topology.interop.mm2_flow import build_mirror_flow
from watershed.topology.interop.mm2_layers import SettingLayers, split_into_layers
from watershed.topology.interop.mm2_pair import MirrorCluster, MirrorPair
from watershed.topology.interop.topology_writer import build_cluster_alias

_PAIR = re.compile(r"^[ \t]*[^\s#!=:>][^\s=:>]*->[^\s=:>]+\.[a-z]", re.MULTILINE)
_CLUSTERS = re.compile(r"^[ \t]*clusters[ \t]*[=:][ \t]*\S", re.MULTILINE)
_BOOTSTRAP = re.compile(r"^[ \t]*[^\s#!=:]+\.bootstrap\.servers[ \t]*[=: ]", re.MULTILINE)


def recognises(document: ForeignDocument) -> bool:
    """True for the properties file of MirrorMaker 2 (`connect-mirror-maker.sh`)."""
    text = document.text
    return text.lstrip()[:1] not in ("{", "[") and (
        _PAIR.search(text) is not None or (_CLUSTERS.search(text) is not None and _BOOTSTRAP.search(text) is not None)
    )


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """Raises UnreadableTopology when no clusters are declared, or for several files."""
    if len(documents) > 1:
        raise UnreadableTopology(f"{documents[1].file}: a second MirrorMaker file; import one at a time")
    [document] = documents
    notes = ImportNotes()
    said = parse_properties(document.text, document.file, notes)
    check_literal_secrets(said, notes)
    names, declared = _names(said, document, notes)
    layers = split_into_layers(said, names, notes)
    aliases: dict[str, str] = {}
    for name in names:
        aliases[build_cluster_alias(name, aliases)] = name
    ends = {name: MirrorCluster(name, alias) for alias, name in aliases.items()}
    clusters = tuple(_cluster(ends[name], layers, notes) for name in names)
    places = {end.alias: _place(end, layers, declared) for end in ends.values()}
    check_cluster_aliases({end: places[end.alias] for end in ends.values()}, notes)
    check_imported_clusters(clusters, places, notes)
    pairs = _pairs(ends, layers, declared, tuple(document.text.splitlines()), notes)
    check_mirror_pairs(pairs, notes)
    targets = {each.alias: each for each in clusters}
    for pair in pairs:
        check_replication_factor(pair.config.get("replication.factor"), targets[pair.target.alias], notes)
    flows = tuple(build_mirror_flow(pair, notes) for pair in pairs)
    return ImportedTopology(
        format="mm2",
        name=build_cluster_alias(PurePath(document.file).stem),
        file=document.file,
        text=document.text,
        clusters=clusters,
        flows=flows,
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _names(
    said: list[ForeignSetting], document: ForeignDocument, notes: ImportNotes
) -> tuple[tuple[str, ...], FileSpan]:
    declared = next((each for each in said if each.name == "clusters"), None)
    if declared is None:
        raise UnreadableTopology(f"{document.file}: no `clusters = …`, without which MirrorMaker does not start")
    names = tuple(dict.fromkeys(each.strip() for each in declared.text.split(",") if each.strip()))
    if not names:
        raise UnreadableTopology(f"{document.file}:{declared.span.line}: `clusters` names no cluster")
    for name in names:
        if re.search(r"\s", name):
            notes.add_problem(
                "SYN011", f"`clusters`: `{name}` is one alias with a space in it", declared.span, "put commas"
            )
    return names, declared.span


def _cluster(end: MirrorCluster, layers: SettingLayers, notes: ImportNotes) -> ImportedCluster:
    own = layers.clusters.get(end.name, {})
    client = {key: said for key, said in {**layers.top, **own}.items() if mm2_settings.is_connection_key(key)}
    bootstrap = parse_bootstrap_servers(end.alias, client.get("bootstrap.servers"), notes)
    return ImportedCluster(end.alias, bootstrap, security=build_client_security(end.alias, client, notes))


def _place(end: MirrorCluster, layers: SettingLayers, declared: FileSpan) -> FileSpan:
    said = layers.clusters.get(end.name, {}).get("bootstrap.servers")
    return said.key if said is not None else declared


def _pairs(
    ends: dict[str, MirrorCluster],
    layers: SettingLayers,
    declared: FileSpan,
    lines: tuple[str, ...],
    notes: ImportNotes,
) -> list[MirrorPair]:
    """Every pair that copies. One that does not is no flow: a paused flow of topics that nobody meant would count as
    a way back, and anybody could resume it (decision 0115)."""
    found: list[MirrorPair] = []
    off: list[str] = []
    for source in ends.values():
        for target in ends.values():
            if source is target:
                continue
            own = layers.pairs.get((source.name, target.name), {})
            enabled = own.get("enabled") or layers.top.get("enabled")
            where = enabled.key if enabled is not None else min((each.key for each in own.values()), default=declared)
            if _is_copying(own, layers.top, notes):
                config = _effective(source, target, layers)
                found.append(MirrorPair(source, target, config, where, True, tuple(ends), False, lines))
            elif "enabled" in own and not parse_java_boolean(own["enabled"], False):
                off.append(f"{source.name}->{target.name}")
            elif not parse_java_boolean(enabled, False) and any(not key.startswith("emit.") for key in own):
                notes.add_problem(
                    "GRF216",
                    f"{source.name}->{target.name} has settings but no `enabled = true`: nothing is copied",
                    where,
                    f"write `{source.name}->{target.name}.enabled = true`, and import again; no flow is imported",
                    severity="warning",
                )
    if off:
        why = "they copy nothing, so they are no flows; for a way back see `failback` and `rollback.reverse`"
        notes.add_not_carried(f"pairs that are switched off: {', '.join(sorted(off))}", why, declared)
    if not found:
        notes.add_problem(
            "GRF216",
            "no pair of these clusters copies anything: no flow is imported",
            declared,
            "write `A->B.enabled = true` for the pair that copies, or add the flow to the imported file",
            severity="warning",
        )
    ways = find_reachable_clusters((pair.source.name, pair.target.name) for pair in found)
    return [replace(pair, returns=pair.source.name in ways.get(pair.target.name, set())) for pair in found]


def _is_copying(own: Mapping[str, ForeignSetting], top: Mapping[str, ForeignSetting], notes: ImportNotes) -> bool:
    """Whether MirrorMaker starts the pair, and its source connector then copies. It reads `a->b.enabled` twice: with
    blanks when it starts pairs, without them in the connector. Source: MirrorMakerConfig.clusterPairs, ConfigDef."""
    enabled = own.get("enabled") or top.get("enabled")
    if enabled is None:
        return False
    if enabled.text.strip().lower() not in ("true", "false"):
        notes.add_problem("SYN011", f"`{enabled.name}`: expected true or false; it counts as false", enabled.span)
    if not parse_java_boolean(enabled, False):
        return False
    beats = own.get("emit.heartbeats.enabled") or top.get("emit.heartbeats.enabled")
    if is_exactly_true(own.get("enabled"), False) or is_exactly_true(beats, True):
        return True
    what = "a blank follows `true`, which MirrorMaker reads as false" if enabled.padded else "it starts no pair"
    notes.add_problem(
        "SYN011",
        f"`{enabled.name}`: {what} where heartbeats are off: nothing is copied",
        enabled.span,
        "take the blank away, and import again" if enabled.padded else "write `A->B.enabled = true` for the pair",
    )
    return False


def _effective(source: MirrorCluster, target: MirrorCluster, layers: SettingLayers) -> dict[str, ForeignSetting]:
    """What the connectors of the pair read, by plain key."""
    own = layers.pairs.get((source.name, target.name), {})
    config = {key: said for key, said in layers.top.items() if key in mm2_settings.CARRIED_MM2_KEYS}
    config |= {key: said for key, said in own.items() if key in mm2_settings.CARRIED_MM2_KEYS}
    reads = layers.clusters.get(source.name, {})
    for key in mm2_settings.SOURCE_CONSUMER_KEYS:
        chosen = own.get(f"source.{key}") or reads.get(key) or own.get(key)
        if chosen is not None:
            config[key] = chosen
    writes = layers.clusters.get(target.name, {}).get("exactly.once.source.support")
    if writes is not None:
        config["exactly.once.source.support"] = writes
    return config
