"""MirrorMaker 2's connectors as they are given to Connect: `{"name": …, "config": {…}}`, bare configurations, arrays,
the answer of `GET /connectors?expand=info`, properties of a standalone worker, and Strimzi's KafkaConnector."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from topology.errors import UnreadableTopology
from topology.finding import Span
from topology.interop import keys
from topology.interop.addresses import bootstrap_of
from topology.interop.checks import check_addresses, check_aliases, check_pairs, reachable
from topology.interop.formats import Document, child
from topology.interop.imported import Imported, ImportedCluster
from topology.interop.join import joined
from topology.interop.mirror import End, Pair, flow_of
from topology.interop.properties import read_properties
from topology.interop.said import Notes, Said, true
from topology.interop.security import literal_secrets, security_of
from topology.interop.tree import documents_of, scalar, settings_of
from topology.interop.write import alias_of
from topology.nodes import Node

_CLASS = re.compile(r"(?:org\.apache\.kafka\.connect\.mirror\.)?Mirror(Source|Checkpoint|Heartbeat)Connector")
_ANYWHERE = re.compile(r"Mirror(?:Source|Checkpoint|Heartbeat)Connector")
_END = re.compile(r"(source|target)\.cluster\.(.+)")
_CLIENT = re.compile(r"(?:(?:source|target)\.)?(?:consumer|producer|admin)\..+")


@dataclass(frozen=True, slots=True)
class _Connector:
    """`kind` is Source, Checkpoint or Heartbeat; `config` as it stands, `where` its place."""

    kind: str
    config: dict[str, Said]
    where: Span
    running: bool = True

    def alias(self, end: str) -> str:
        """MirrorConnectorConfig's default for an alias is the word itself."""
        said = self.config.get(f"{end}.cluster.alias")
        return said.text.strip() if said is not None and said.text.strip() else end

    @property
    def pair(self) -> tuple[str, str]:
        return self.alias("source"), self.alias("target")


def recognises(document: Document) -> bool:
    if _ANYWHERE.search(document.text) is None or re.search(r"(?m)^[^\S\n]*kind:\s*KafkaMirrorMaker2\b", document.text):
        return False
    return any(True for _ in _connectors(document, Notes()))


def read(documents: tuple[Document, ...]) -> Imported:
    """Raises UnreadableTopology when the files hold none of the three connectors."""
    notes = Notes()
    connectors = [each for document in documents for each in _connectors(document, notes)]
    if not connectors:
        raise UnreadableTopology(f"{documents[0].file}: no connector of MirrorMaker 2 (`connector.class`)")
    for each in connectors:
        literal_secrets(list(each.config.values()), notes)
        _judge(each, notes)
    aliases: dict[str, str] = {}
    places: dict[str, Span] = {}
    for each in connectors:
        for name in each.pair:
            alias = alias_of(name, aliases)
            aliases[alias] = name
            places.setdefault(alias, each.where)
    ends = {name: End(name, alias) for alias, name in aliases.items()}
    clusters = tuple(_cluster(end, connectors, notes) for end in ends.values())
    check_aliases({end: places[end.alias] for end in ends.values()}, notes)
    check_addresses(clusters, places, notes)
    pairs = _pairs(connectors, ends, notes)
    check_pairs(pairs, notes)
    return Imported(
        format="connect",
        name=alias_of(PurePath(documents[0].file).stem),
        file=documents[0].file,
        text=documents[0].text,
        clusters=clusters,
        flows=tuple(flow_of(pair, notes) for pair in pairs),
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _connectors(document: Document, notes: Notes) -> Iterator[_Connector]:
    if document.tree is None:
        said = {each.name: each for each in read_properties(document.text, document.file, notes)}
        found = _CLASS.fullmatch(said["connector.class"].text.strip()) if "connector.class" in said else None
        if found is not None:
            yield _Connector(found[1], said, said["connector.class"].key)
        return
    for tree in documents_of(document, notes):
        yield from _within(tree, notes)


def _within(node: Node, notes: Notes) -> Iterator[_Connector]:
    """Wherever a configuration of one of the three classes stands."""
    todo = [node]
    while todo:
        here = todo.pop()
        if here.kind == "list":
            todo += reversed(here.items)
            continue
        if here.kind != "map":
            continue
        spec, config = child(here, "spec"), child(here, "config")
        named = scalar(spec, "class") if spec is not None else scalar(here, "connector.class")
        named = named or scalar(config, "connector.class") or scalar(here, "connector_class")
        found = _CLASS.fullmatch(named.text.strip()) if named is not None else None
        if found is None:
            todo += reversed([value for _, value in here.entries])
            continue
        inner = child(spec, "config") if spec is not None else config
        settings = settings_of(inner if inner is not None else here, "", notes)
        if spec is not None and (tasks := scalar(spec, "tasksMax")) is not None:
            settings["tasks.max"] = tasks
        state = scalar(spec, "state") or scalar(here, "initial_state") or scalar(here, "target_state")
        running = state is None or state.text.lower() not in ("paused", "stopped")
        running = running and true(settings.get("enabled"), True)
        assert named is not None, "found in it"
        yield _Connector(found[1], settings, named.key, running)


def _judge(connector: _Connector, notes: Notes) -> None:
    """Unknown settings, and why known ones stay behind."""
    for end in ("source", "target"):
        if f"{end}.cluster.alias" not in connector.config and not (end == "target" or connector.kind == "Heartbeat"):
            notes.say("SYN012", f"the connector says no `{end}.cluster.alias`", connector.where, "it does not start")
    for name, said in connector.config.items():
        key = keys.today(name, said, notes)
        match = _END.fullmatch(key)
        if match is not None:
            if match[2] == "alias" or keys.security(match[2]):
                continue
            if keys.known(match[2]) or _CLIENT.fullmatch(match[2]):
                notes.leave(
                    f"`{said.name}`", keys.why_left(match[2]) or "it says nothing about a connection", said.span
                )
                continue
        if key in keys.CARRIED or re.fullmatch(r"(?:source\.)?consumer\.(?:auto\.offset\.reset|isolation\.level)", key):
            continue
        why = keys.why_left(key)
        if why is None and keys.security(key):
            why = "MirrorMaker connects with `source.cluster.…` and `target.cluster.…` only"
        if why is None:
            _report_unknown(key, said, notes)
            why = "an unknown setting"
        notes.leave(f"`{said.name}`", why, said.span)


def _report_unknown(key: str, said: Said, notes: Notes) -> None:
    near = keys.meant(key)
    if near is not None:
        notes.say("SYN003", f"`{said.name}` is no setting of MirrorMaker", said.key, f"did you mean `{near}`?")
    else:
        message = f"`{said.name}` is no known setting of MirrorMaker"
        notes.say("SYN003", message, said.key, severity="warning")


def _cluster(end: End, connectors: list[_Connector], notes: Notes) -> ImportedCluster:
    """The first connector that says how to connect to it counts."""
    client: dict[str, Said] = {}
    for each in connectors:
        for side in ("source", "target"):
            if each.alias(side) == end.name:
                for key, said in each.config.items():
                    match = _END.fullmatch(key)
                    if match is not None and match[1] == side and keys.security(match[2]):
                        client.setdefault(match[2], said)
    bootstrap = bootstrap_of(end.alias, client.get("bootstrap.servers"), notes)
    return ImportedCluster(end.alias, bootstrap, security=security_of(end.alias, client, notes))


def _pairs(connectors: list[_Connector], ends: dict[str, End], notes: Notes) -> list[Pair]:
    by_pair: dict[tuple[str, str], dict[str, _Connector]] = {}
    for each in connectors:
        kinds = by_pair.setdefault(each.pair, {})
        if each.kind in kinds:
            notes.say(
                "GRF214",
                f"a second {each.kind.lower()} connector from {each.pair[0]} to {each.pair[1]}: they share "
                "MirrorMaker's internal topics",
                each.where,
                "make one of both, or give the clusters other aliases; the first was imported",
            )
            continue
        kinds[each.kind] = each
    ways = reachable(pair for pair, kinds in by_pair.items() if "Source" in kinds)
    pairs = []
    for (source, target), kinds in by_pair.items():
        main = kinds.get("Source")
        if source == target:
            where = next(iter(kinds.values())).where
            notes.say(
                "CLU107", f"the connector copies cluster `{source}` to itself", where, "name the two clusters apart"
            )
            continue
        if main is None:
            only = " and ".join(sorted(kind.lower() for kind in kinds))
            where = next(iter(kinds.values())).where
            notes.leave(f"{only} connector {source}->{target}", "it copies no topics, so it is no flow", where)
            continue
        checkpoint = kinds.get("Checkpoint")
        config = joined(_plain(main), _plain(checkpoint) if checkpoint else None, notes)
        returns = source in ways.get(target, set())
        pairs.append(Pair(ends[source], ends[target], config, main.where, main.running, tuple(ends), returns))
    return pairs


def _plain(connector: _Connector) -> dict[str, Said]:
    """Settings by the names that `mirror` reads; `source.consumer.` wins over `consumer.`."""
    out = {keys.RENAMED.get(key, key): said for key, said in connector.config.items()}
    for key in ("consumer.auto.offset.reset", "consumer.isolation.level"):
        if f"source.{key}" in out:
            out[key] = out[f"source.{key}"]
    return out
