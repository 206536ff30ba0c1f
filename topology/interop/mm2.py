"""MirrorMaker 2's own file, `connect-mirror-maker.properties`, with all its layers.

For the connectors of `a->b`: top-level connector settings, then `a.` and `b.` (how to connect; `a.consumer.…`), then
`a->b.…`; of one client setting `source.consumer.` wins over `consumer.`. Whatever stands in another layer than the one
that reads it has no effect, and MirrorMaker does not say so. Source: apache/kafka MirrorMakerConfig.java,
MirrorConnectorConfig.java.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath

from topology.errors import UnreadableTopology
from topology.finding import Span
from topology.interop import keys
from topology.interop.addresses import bootstrap_of
from topology.interop.checks import check_addresses, check_aliases, check_pairs, reachable
from topology.interop.formats import Document
from topology.interop.imported import Imported, ImportedCluster
from topology.interop.layers import Layers, layers_of
from topology.interop.mirror import End, Pair, flow_of
from topology.interop.properties import read_properties
from topology.interop.said import Notes, Said, true
from topology.interop.security import literal_secrets, security_of
from topology.interop.write import alias_of

_PAIR = re.compile(r"^[ \t]*[^\s#!=:>][^\s=:>]*->[^\s=:>]+\.[a-z]", re.MULTILINE)
_CLUSTERS = re.compile(r"^[ \t]*clusters[ \t]*[=:][ \t]*\S", re.MULTILINE)
_BOOTSTRAP = re.compile(r"^[ \t]*[^\s#!=:]+\.bootstrap\.servers[ \t]*[=: ]", re.MULTILINE)


def recognises(document: Document) -> bool:
    text = document.text
    return text.lstrip()[:1] not in ("{", "[") and (
        _PAIR.search(text) is not None or (_CLUSTERS.search(text) is not None and _BOOTSTRAP.search(text) is not None)
    )


def read(documents: tuple[Document, ...]) -> Imported:
    """Raises UnreadableTopology when no clusters are declared, or for several files."""
    if len(documents) > 1:
        raise UnreadableTopology(f"{documents[1].file}: a second MirrorMaker file; import one at a time")
    [document] = documents
    notes = Notes()
    said = read_properties(document.text, document.file, notes)
    literal_secrets(said, notes)
    names, declared = _names(said, document, notes)
    layers = layers_of(said, names, notes)
    aliases: dict[str, str] = {}
    for name in names:
        aliases[alias_of(name, aliases)] = name
    ends = {name: End(name, alias) for alias, name in aliases.items()}
    clusters = tuple(_cluster(ends[name], layers, notes) for name in names)
    places = {end.alias: _place(end, layers, declared) for end in ends.values()}
    check_aliases({end: places[end.alias] for end in ends.values()}, notes)
    check_addresses(clusters, places, notes)
    pairs = _pairs(ends, layers, declared, tuple(document.text.splitlines()), notes)
    check_pairs(pairs, notes)
    flows = tuple(flow_of(pair, notes) for pair in pairs)
    return Imported(
        format="mm2",
        name=alias_of(PurePath(document.file).stem),
        file=document.file,
        text=document.text,
        clusters=clusters,
        flows=flows,
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _names(said: list[Said], document: Document, notes: Notes) -> tuple[tuple[str, ...], Span]:
    declared = next((each for each in said if each.name == "clusters"), None)
    if declared is None:
        raise UnreadableTopology(f"{document.file}: no `clusters = …`, without which MirrorMaker does not start")
    names = tuple(dict.fromkeys(each.strip() for each in declared.text.split(",") if each.strip()))
    if not names:
        raise UnreadableTopology(f"{document.file}:{declared.span.line}: `clusters` names no cluster")
    for name in names:
        if re.search(r"\s", name):
            notes.say("SYN011", f"`clusters`: `{name}` is one alias with a space in it", declared.span, "put commas")
    return names, declared.span


def _cluster(end: End, layers: Layers, notes: Notes) -> ImportedCluster:
    own = layers.clusters.get(end.name, {})
    client = {key: said for key, said in {**layers.top, **own}.items() if keys.security(key)}
    bootstrap = bootstrap_of(end.alias, client.get("bootstrap.servers"), notes)
    return ImportedCluster(end.alias, bootstrap, security=security_of(end.alias, client, notes))


def _place(end: End, layers: Layers, declared: Span) -> Span:
    said = layers.clusters.get(end.name, {}).get("bootstrap.servers")
    return said.key if said is not None else declared


def _pairs(ends: dict[str, End], layers: Layers, declared: Span, lines: tuple[str, ...], notes: Notes) -> list[Pair]:
    """Every pair that has settings of its own, or runs; those that only beat are listed."""
    found: list[Pair] = []
    beating: list[str] = []
    for source in ends.values():
        for target in ends.values():
            own = layers.pairs.get((source.name, target.name), {})
            if source is target:
                continue
            enabled = own.get("enabled") or layers.top.get("enabled")
            running = true(enabled, False)
            beats = true(own.get("emit.heartbeats.enabled") or layers.top.get("emit.heartbeats.enabled"), True)
            if not running and beats:
                beating.append(f"{source.name}->{target.name}")
            if not running and (source.name, target.name) not in layers.pairs:
                continue
            if enabled is None:
                first = min((each.key for each in own.values()), default=declared)
                notes.say(
                    "GRF216",
                    f"{source.name}->{target.name} has settings but no `enabled = true`: nothing is copied",
                    first,
                    f"write `{source.name}->{target.name}.enabled = true`; the imported flow is paused",
                    ids=(f"{source.alias}-to-{target.alias}",),
                    severity="warning",
                )
            elif enabled.text.strip().lower() not in ("true", "false"):
                notes.say("SYN011", f"`{enabled.name}`: expected true or false; it counts as false", enabled.span)
            where = enabled.key if enabled is not None else min((each.key for each in own.values()), default=declared)
            config = _effective(source, target, layers)
            found.append(Pair(source, target, config, where, running, tuple(ends), False, lines))
    if beating:
        why = "only heartbeats go there, unless `emit.heartbeats.enabled = false`; there are no heartbeats here"
        notes.leave(f"pairs that are not enabled: {', '.join(sorted(beating))}", why, declared)
    ways = reachable((pair.source.name, pair.target.name) for pair in found)
    return [replace(pair, returns=pair.source.name in ways.get(pair.target.name, set())) for pair in found]


def _effective(source: End, target: End, layers: Layers) -> dict[str, Said]:
    """What the connectors of the pair read, by plain key."""
    own = layers.pairs.get((source.name, target.name), {})
    config = {key: said for key, said in layers.top.items() if key in keys.CARRIED}
    config |= {key: said for key, said in own.items() if key in keys.CARRIED}
    reads = layers.clusters.get(source.name, {})
    for key in ("consumer.auto.offset.reset", "consumer.isolation.level"):
        chosen = own.get(f"source.{key}") or reads.get(key) or own.get(key)
        if chosen is not None:
            config[key] = chosen
    writes = layers.clusters.get(target.name, {}).get("exactly.once.source.support")
    if writes is not None:
        config["exactly.once.source.support"] = writes
    return config
