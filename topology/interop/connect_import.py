"""MirrorMaker 2's connectors as they are given to Connect: `{"name": …, "config": {…}}`, bare configurations, arrays,
the answer of `GET /connectors?expand=info`, properties of a standalone worker, and Strimzi's KafkaConnector."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
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
from watershed.topology.interop.import_formats import ForeignDocument, find_child_node
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, parse_java_boolean
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedTopology
from watershed.topology.interop.java_properties import parse_properties
from watershed.topology.interop.mm2_connector_merge import merge_connector_settings, state_heartbeats
from watershed.topology.interop.mm2_flow import build_mirror_flow
from watershed.topology.interop.mm2_pair import MirrorCluster, MirrorPair
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.interop.yaml_settings import collect_settings, find_scalar_setting, parse_yaml_documents
from watershed.topology.yaml_tree import YamlNode

_CLASS = re.compile(r"(?:org\.apache\.kafka\.connect\.mirror\.)?Mirror(Source|Checkpoint|Heartbeat)Connector")
_ANYWHERE = re.compile(r"Mirror(?:Source|Checkpoint|Heartbeat)Connector")
_END = re.compile(r"(source|target)\.cluster\.(.+)")
_CONSUMER = re.compile(r"(?:source\.)?consumer\.(?:auto\.offset\.reset|isolation\.level)")
_CLIENT = re.compile(r"(?:(?:source|target)\.)?(?:consumer|producer|admin)\..+")


@dataclass(frozen=True, slots=True)
class _MirrorConnector:
    """`kind` is Source, Checkpoint or Heartbeat; `config` as it stands, `where` its place."""

    kind: str
    config: dict[str, ForeignSetting]
    where: FileSpan
    running: bool = True

    def alias(self, end: str) -> str:
        """MirrorConnectorConfig's default for an alias is the word itself."""
        said = self.config.get(f"{end}.cluster.alias")
        return said.text.strip() if said is not None and said.text.strip() else end

    @property
    def pair(self) -> tuple[str, str]:
        return self.alias("source"), self.alias("target")


def recognises(document: ForeignDocument) -> bool:
    """True for the JSON or YAML of one or several Connect connectors of MirrorMaker 2."""
    if _ANYWHERE.search(document.text) is None or re.search(r"(?m)^[^\S\n]*kind:\s*KafkaMirrorMaker2\b", document.text):
        return False
    return any(True for _ in _connectors(document, ImportNotes()))


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """Raises UnreadableTopology when the files hold none of the three connectors."""
    notes = ImportNotes()
    connectors = [each for document in documents for each in _connectors(document, notes)]
    if not connectors:
        raise UnreadableTopology(f"{documents[0].file}: no connector of MirrorMaker 2 (`connector.class`)")
    for each in connectors:
        check_literal_secrets(list(each.config.values()), notes)
        _judge(each, notes)
    aliases: dict[str, str] = {}
    places: dict[str, FileSpan] = {}
    for each in connectors:
        for name in each.pair:
            alias = build_cluster_alias(name, aliases)
            aliases[alias] = name
            places.setdefault(alias, each.where)
    ends = {name: MirrorCluster(name, alias) for alias, name in aliases.items()}
    clusters = tuple(_cluster(end, connectors, notes) for end in ends.values())
    check_cluster_aliases({end: places[end.alias] for end in ends.values()}, notes)
    check_imported_clusters(clusters, places, notes)
    pairs = _pairs(connectors, ends, notes)
    check_mirror_pairs(pairs, notes)
    targets = {each.alias: each for each in clusters}
    for pair in pairs:
        check_replication_factor(pair.config.get("replication.factor"), targets[pair.target.alias], notes)
    return ImportedTopology(
        format="connect",
        name=build_cluster_alias(PurePath(documents[0].file).stem),
        file=documents[0].file,
        text=documents[0].text,
        clusters=clusters,
        flows=tuple(build_mirror_flow(pair, notes) for pair in pairs),
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _connectors(document: ForeignDocument, notes: ImportNotes) -> Iterator[_MirrorConnector]:
    if document.tree is None:
        said = {each.name: each for each in parse_properties(document.text, document.file, notes)}
        found = _CLASS.fullmatch(said["connector.class"].text.strip()) if "connector.class" in said else None
        if found is not None:
            yield _MirrorConnector(found[1], said, said["connector.class"].key)
        return
    for tree in parse_yaml_documents(document, notes):
        yield from _within(tree, notes)


def _within(node: YamlNode, notes: ImportNotes) -> Iterator[_MirrorConnector]:
    """Wherever a configuration of one of the three classes stands."""
    todo = [node]
    while todo:
        here = todo.pop()
        if here.kind == "list":
            todo += reversed(here.items)
            continue
        if here.kind != "map":
            continue
        spec, config = find_child_node(here, "spec"), find_child_node(here, "config")
        named = find_scalar_setting(spec, "class") if spec is not None else find_scalar_setting(here, "connector.class")
        named = named or find_scalar_setting(config, "connector.class") or find_scalar_setting(here, "connector_class")
        found = _CLASS.fullmatch(named.text.strip()) if named is not None else None
        if found is None:
            todo += reversed([value for _, value in here.entries])
            continue
        inner = find_child_node(spec, "config") if spec is not None else config
        settings = collect_settings(inner if inner is not None else here, "", notes)
        if spec is not None and (tasks := find_scalar_setting(spec, "tasksMax")) is not None:
            settings["tasks.max"] = tasks
        state = (
            find_scalar_setting(spec, "state")
            or find_scalar_setting(here, "initial_state")
            or find_scalar_setting(here, "target_state")
        )
        running = state is None or state.text.lower() not in ("paused", "stopped")
        assert named is not None, "found in it"
        yield _MirrorConnector(found[1], settings, named.key, running)


def _judge(connector: _MirrorConnector, notes: ImportNotes) -> None:
    """Unknown settings, and why known ones stay behind."""
    for end in ("source", "target"):
        if f"{end}.cluster.alias" not in connector.config and not (end == "target" or connector.kind == "Heartbeat"):
            notes.add_problem(
                "SYN012", f"the connector says no `{end}.cluster.alias`", connector.where, "it does not start"
            )
    for name, said in connector.config.items():
        key = mm2_settings.resolve_renamed_key(name, said, notes)
        match = _END.fullmatch(key)
        if match is not None:
            if match[2] == "alias" or mm2_settings.is_connection_key(match[2]):
                continue
            if mm2_settings.is_known_mm2_key(match[2]) or _CLIENT.fullmatch(match[2]):
                notes.add_not_carried(
                    f"`{said.name}`",
                    mm2_settings.explain_not_carried(match[2]) or "it says nothing about a connection",
                    said.span,
                )
                continue
        if not _CONSUMER.fullmatch(key):
            mm2_settings.note_connector_setting(key, said, notes)


def _cluster(end: MirrorCluster, connectors: list[_MirrorConnector], notes: ImportNotes) -> ImportedCluster:
    """The first connector that says how to connect to it counts."""
    client: dict[str, ForeignSetting] = {}
    for each in connectors:
        for side in ("source", "target"):
            if each.alias(side) == end.name:
                for key, said in each.config.items():
                    match = _END.fullmatch(key)
                    if match is not None and match[1] == side and mm2_settings.is_connection_key(match[2]):
                        client.setdefault(match[2], said)
    bootstrap = parse_bootstrap_servers(end.alias, client.get("bootstrap.servers"), notes)
    return ImportedCluster(end.alias, bootstrap, security=build_client_security(end.alias, client, notes))


def _pairs(connectors: list[_MirrorConnector], ends: dict[str, MirrorCluster], notes: ImportNotes) -> list[MirrorPair]:
    by_pair: dict[tuple[str, str], dict[str, _MirrorConnector]] = {}
    for each in connectors:
        kinds = by_pair.setdefault(each.pair, {})
        if each.kind in kinds:
            notes.add_problem(
                "GRF214",
                f"a second {each.kind.lower()} connector from {each.pair[0]} to {each.pair[1]}: they share "
                "MirrorMaker's internal topics",
                each.where,
                "make one of both, or give the clusters other aliases; the first was imported",
            )
            continue
        kinds[each.kind] = each
    ways = find_reachable_clusters(pair for pair, kinds in by_pair.items() if "Source" in kinds)
    pairs = []
    for (source, target), kinds in by_pair.items():
        main = kinds.get("Source")
        if source == target:
            where = next(iter(kinds.values())).where
            notes.add_problem(
                "CLU107", f"the connector copies cluster `{source}` to itself", where, "name the two clusters apart"
            )
            continue
        if main is not None and not parse_java_boolean(main.config.get("enabled"), True):
            said = main.config["enabled"]
            why = "a connector that is not enabled copies nothing, so it is no flow"
            notes.add_not_carried(f"source connector {source}->{target}", why, said.span)
            continue
        if main is None:
            only = " and ".join(sorted(kind.lower() for kind in kinds))
            where = next(iter(kinds.values())).where
            notes.add_not_carried(
                f"{only} connector {source}->{target}", "it copies no topics, so it is no flow", where
            )
            continue
        checkpoint, beats = kinds.get("Checkpoint"), kinds.get("Heartbeat")
        heartbeat = {} if beats is None else state_heartbeats("MirrorHeartbeatConnector", beats.where) | _plain(beats)
        config = merge_connector_settings(_plain(main), _plain(checkpoint) if checkpoint else None, heartbeat, notes)
        returns = source in ways.get(target, set())
        pairs.append(
            MirrorPair(
                ends[source],
                ends[target],
                config,
                main.where,
                main.running,
                tuple(ends),
                returns,
                has_checkpoints=checkpoint is not None,
            )
        )
    return pairs


def _plain(connector: _MirrorConnector) -> dict[str, ForeignSetting]:
    """Settings by the names that `mirror` reads; `source.consumer.` wins over `consumer.`."""
    out = {mm2_settings.RENAMED_MM2_KEYS.get(key, key): said for key, said in connector.config.items()}
    for key in mm2_settings.SOURCE_CONSUMER_KEYS:
        if f"source.{key}" in out:
            out[key] = out[f"source.{key}"]
    return out
