"""MirrorMaker 1 and uReplicator: the properties of their consumer and producer, uReplicator's `clusters.properties`,
and its topic mapping. All files of a directory are one flow.

Neither tool says in its files which topics it copies: MirrorMaker 1 has them on its command line (`--whitelist`),
uReplicator in ZooKeeper. A topic mapping names some. Source: uber/uReplicator config and README, and "Mirror Maker" in
the documentation of Kafka 0.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop import mm2_settings
from watershed.topology.interop.bootstrap_servers import parse_bootstrap_servers
from watershed.topology.interop.client_security import build_client_security, check_literal_secrets
from watershed.topology.interop.import_checks import check_imported_clusters
from watershed.topology.interop.import_formats import ForeignDocument
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedFlow, ImportedTopology
from watershed.topology.interop.java_properties import parse_properties
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.selectors import Selector

_NAME = r"[a-zA-Z0-9._-]{1,249}"
_MAPPING = re.compile(rf"[ \t]*({_NAME})[ \t]+({_NAME})[ \t]*")
_CLUSTER = re.compile(r"kafka\.cluster\.(zkStr|servers)\.(.+)")
_OTHERS = re.compile(r"(?m)^[ \t]*(?:connector\.class|clusters|link\.mode|key\.converter|offset\.storage\.\S+|.*->)")
_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_PRODUCER = frozenset(
    ["acks", "request.required.acks", "batch.size", "linger.ms", "compression.type", "compression.codec"]
)
# the words of the consumer before 0.9 as well
_STARTS = {"smallest": "earliest", "earliest": "earliest", "largest": "latest", "latest": "latest"}
_CARRIED = {*_SERVERS, "group.id", "auto.offset.reset", "isolation.level"}
_LEFT = (
    (re.compile(r"zookeeper\..*|kafka\.cluster\.zkStr\..*"), "Watershed talks to brokers only"),
    (re.compile(r"helix.*|federated\..*|route.*"), "workers share partitions by themselves, without Helix"),
)
_TUNING = "tuning of a Kafka client; Watershed tunes its own"


@dataclass(slots=True)
class _LegacyFiles:
    """What the files of one mirror say. `clusters` has the addresses by name, `chroots` the names by their path in
    ZooKeeper, `mapping` the topics by their new name."""

    consumer: dict[str, ForeignSetting] = field(default_factory=dict)
    producer: dict[str, ForeignSetting] = field(default_factory=dict)
    clusters: dict[str, ForeignSetting] = field(default_factory=dict)
    chroots: dict[str, str] = field(default_factory=dict)
    mapping: dict[str, tuple[str, FileSpan]] = field(default_factory=dict)


def recognises(document: ForeignDocument) -> bool:
    """True for one of the four kinds of file."""
    return _tell_kind(document) is not None


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """Raises UnreadableTopology where neither a consumer nor a list of clusters is among the files."""
    notes = ImportNotes()
    files = _LegacyFiles()
    for document in documents:
        _add_document(document, files, notes)
    if not files.consumer and not files.clusters:
        raise UnreadableTopology(
            f"{documents[0].file}: a producer or a topic mapping alone; name the directory that holds the consumer's "
            "properties, too"
        )
    first = documents[0]
    where = FileSpan(first.file, 1, 1, 1, 1)
    name = build_cluster_alias(PurePath(first.file).stem if len(documents) == 1 else PurePath(first.file).parent.name)
    source, target = _name_ends(name, files, where, notes)
    clusters = _build_clusters(source, target, files, notes)
    check_imported_clusters(clusters, {each.alias: where for each in clusters}, notes)
    flows = (_build_flow(source, target, files, where, notes),) if source and target else ()
    return ImportedTopology(
        format="mm1",
        name=name,
        file=first.file,
        text=first.text,
        clusters=clusters,
        flows=flows,
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _tell_kind(document: ForeignDocument) -> str | None:
    text = document.text
    if text.lstrip()[:1] in ("{", "[") or _OTHERS.search(text) is not None:
        return None
    lines = [each for each in text.splitlines() if each.strip() and not each.lstrip().startswith(("#", "!"))]
    if lines and all(_MAPPING.fullmatch(each) for each in lines):
        return "mapping"
    keys = {re.split(r"[ \t]*[=:][ \t]*|[ \t]+", each.strip(), maxsplit=1)[0] for each in lines}
    if any(_CLUSTER.fullmatch(each) for each in keys):
        return "clusters"
    if "group.id" in keys and ("zookeeper.connect" in keys or {"bootstrap.servers", "auto.offset.reset"} <= keys):
        return "consumer"
    if "metadata.broker.list" in keys or ("bootstrap.servers" in keys and keys & _PRODUCER and "group.id" not in keys):
        return "producer"
    return None


def _add_document(document: ForeignDocument, files: _LegacyFiles, notes: ImportNotes) -> None:
    said = {each.name: each for each in parse_properties(document.text, document.file, notes)}
    check_literal_secrets(list(said.values()), notes)
    kind = _tell_kind(document)
    if kind == "mapping":
        files.mapping |= {topic: (each.text, each.span) for topic, each in said.items()}
        return
    if kind == "clusters":
        for key, each in said.items():
            if (match := _CLUSTER.fullmatch(key)) is None:
                continue
            if match[1] == "servers":
                files.clusters[match[2]] = each
            else:
                files.chroots.setdefault(_chroot(each), match[2])
    elif kind == "producer":
        files.producer |= said
    else:
        files.consumer |= said
    for key, each in said.items():
        if key not in _CARRIED and not mm2_settings.is_connection_key(key) and key not in _cluster_keys(said):
            why = next((why for pattern, why in _LEFT if pattern.fullmatch(key)), _TUNING)
            notes.add_not_carried(f"`{key}`", why, each.span)


def _cluster_keys(said: dict[str, ForeignSetting]) -> set[str]:
    return {key for key in said if (match := _CLUSTER.fullmatch(key)) is not None and match[1] == "servers"}


def _chroot(said: ForeignSetting) -> str:
    """The path behind ZooKeeper's addresses, which tells clusters apart that share one ZooKeeper."""
    return said.text.strip().partition("/")[2]


def _name_ends(name: str, files: _LegacyFiles, where: FileSpan, notes: ImportNotes) -> tuple[str, str]:
    """The aliases of source and target: of `clusters.properties` by ZooKeeper's path and by addresses, else made up.
    Empty where only clusters are declared."""
    if not files.consumer:
        why = "no consumer's properties say which cluster is read: name the directory that holds them, too"
        notes.add_not_carried("the flows between these clusters", why, where)
        return "", ""
    zookeeper, servers = files.consumer.get("zookeeper.connect"), files.consumer.get("bootstrap.servers")
    source = files.chroots.get(_chroot(zookeeper), "") if zookeeper is not None and _chroot(zookeeper) else ""
    written = next((files.producer[key] for key in _SERVERS if key in files.producer), None)
    for cluster, said in files.clusters.items():
        if servers is not None and said.text.strip() == servers.text.strip():
            source = source or cluster
        if written is not None and said.text.strip() == written.text.strip() and cluster != source:
            target = cluster
            break
    else:
        target = ""
    ends = []
    for end, found in (("source", source), ("target", target)):
        alias = build_cluster_alias(found) if found else f"{name}-{end}"
        if not found:
            notes.add_not_carried(f"the {end}, called {alias}", "no file names it; rename it where it stands", where)
        ends.append(alias)
    return ends[0], ends[1]


def _build_clusters(source: str, target: str, files: _LegacyFiles, notes: ImportNotes) -> tuple[ImportedCluster, ...]:
    client: dict[str, dict[str, ForeignSetting]] = {
        build_cluster_alias(name): {"bootstrap.servers": said} for name, said in files.clusters.items()
    }
    for alias, said in ((source, files.consumer), (target, files.producer)):
        if not alias:
            continue
        own = client.setdefault(alias, {})
        for key, each in said.items():
            plain = "bootstrap.servers" if key == "metadata.broker.list" else key
            if mm2_settings.is_connection_key(plain):
                own[plain] = each
    return tuple(
        ImportedCluster(
            alias,
            parse_bootstrap_servers(alias, own.get("bootstrap.servers"), notes),
            security=build_client_security(alias, own, notes),
        )
        for alias, own in sorted(client.items())
    )


def _build_flow(source: str, target: str, files: _LegacyFiles, where: FileSpan, notes: ImportNotes) -> ImportedFlow:
    settings: dict[str, Any] = _naming(files, notes)
    settings |= _delivery(files.consumer, where, notes)
    settings["sync"] = {"groups": {"mode": "never"}}
    if not files.mapping:
        why = (
            "they stand on MirrorMaker's command line (`--whitelist`), or in uReplicator's ZooKeeper: fill in `topics`"
        )
        notes.add_not_carried(f"topics of {source}->{target}", why, where)
    include = tuple(sorted(Selector("literal", topic) for topic in files.mapping))
    return ImportedFlow(source, target, include, settings=settings)


def _naming(files: _LegacyFiles, notes: ImportNotes) -> dict[str, Any]:
    renamed = {topic: to for topic, (to, _) in files.mapping.items() if to != topic}
    taken: dict[str, str] = {}
    for topic, (to, span) in files.mapping.items():
        other = taken.setdefault(to, topic)
        if other != topic:
            message = f"`{topic}` and `{other}` both become `{to}`"
            more = (Label(files.mapping[other][1], "first here"),)
            notes.add_problem("NAM304", message, span, "give each a name of its own", more=more)
    return {"naming": {"policy": "map", "map": renamed} if renamed else {"policy": "identity"}}


def _delivery(consumer: dict[str, ForeignSetting], where: FileSpan, notes: ImportNotes) -> dict[str, Any]:
    """Where the copy starts without a position, and what a person writes to go on from the tool's own positions."""
    out: dict[str, Any] = {}
    start, isolation, group = (consumer.get(key) for key in ("auto.offset.reset", "isolation.level", "group.id"))
    if start is not None and start.text.strip().lower() in _STARTS:
        out["start"] = _STARTS[start.text.strip().lower()]
    elif start is not None:
        message = f"`{start.name}`: expected one of {', '.join(_STARTS)}"
        notes.add_problem("SYN011", message, start.span)
    else:  # the default of Kafka's consumer
        out["start"] = "latest"
        notes.add_not_carried(
            "`auto.offset.reset`", "the file does not say it; the consumer's default is latest", where
        )
    if isolation is not None and isolation.text.strip() in ("read_committed", "read_uncommitted"):
        out["isolation"] = isolation.text.strip()
    if group is not None:
        why = (
            "positions of a group: to go on where it stands, write `delivery.start` as `{group: NAME}`, if the group "
            "commits to Kafka and not to ZooKeeper"
        )
        notes.add_not_carried(f"`{group.name}`", why, group.span)
    return {"delivery": out} if out else {}
