"""Strimzi's KafkaMirrorMaker2, v1beta2 (`clusters`, `connectCluster`) and v1 (`target`, `mirrors[].source`).

Source: strimzi/strimzi-kafka-operator, api/…/model/mirrormaker2 and KafkaMirrorMaker2Connectors.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from topology.errors import UnreadableTopology
from topology.finding import Label, Span
from topology.interop import keys
from topology.interop.addresses import bootstrap_of
from topology.interop.checks import check_addresses, check_aliases, check_pairs, reachable
from topology.interop.formats import Document, child
from topology.interop.imported import Imported, ImportedCluster
from topology.interop.kubernetes import security_in
from topology.interop.mirror import End, Pair, flow_of
from topology.interop.said import Notes, Said
from topology.interop.security import literal_secrets
from topology.interop.strimzi_mirror import config_in, running_in
from topology.interop.tree import documents_of, key_span, scalar, settings_of
from topology.interop.write import alias_of
from topology.nearest import nearest
from topology.nodes import Node

KIND = "KafkaMirrorMaker2"
_KIND = re.compile(rf"""(?m)["']?kind["']?\s*:\s*["']?{KIND}\b""")
_SPEC = frozenset(
    {"clusters", "connectCluster", "target", "mirrors", "version", "replicas", "image", "resources", "livenessProbe"}
    | {"readinessProbe", "jvmOptions", "jmxOptions", "logging", "clientRackInitImage", "rack", "metricsConfig"}
    | {"tracing", "template", "externalConfiguration"}
)
_MIRROR = frozenset(
    {"sourceCluster", "targetCluster", "source", "sourceConnector", "checkpointConnector", "heartbeatConnector"}
    | {"topicsPattern", "topicsExcludePattern", "topicsBlacklistPattern"}
    | {"groupsPattern", "groupsExcludePattern", "groupsBlacklistPattern"}
)
_FORBIDDEN = re.compile(
    r"(?:ssl|sasl|security|listeners|rest|plugin\.path|bootstrap\.servers|group\.id)(?:\..*)?"
    r"|(?:config|offset|status)\.storage\.topic|(?:producer|consumer|admin)\.interceptor\.classes"
)
_ALLOWED = {"ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "ssl.protocol", "ssl.enabled.protocols"}


@dataclass(slots=True)
class _Cluster:
    """`node` is its mapping; `config` what Strimzi takes of its `config`."""

    name: str
    node: Node
    config: dict[str, Said]
    where: Span


def recognises(document: Document) -> bool:
    notes = Notes()
    if _KIND.search(document.text) is None:
        return False
    found = any(True for _ in _resources(document, notes))
    return found or any(each.code == "SYN001" for each in notes.problems)  # `read` says where it is broken


def read(documents: tuple[Document, ...]) -> Imported:
    """All resources of the files form one topology; the same alias is the same cluster.

    Raises UnreadableTopology when there is none."""
    notes = Notes()
    resources = [each for document in documents for each in _resources(document, notes)]
    if not resources:
        broken = next((each for each in notes.problems if each.code == "SYN001"), None)
        if broken is not None:
            raise UnreadableTopology(f"{broken.labels[0].span}: {broken.message}. {broken.help}".rstrip(". "))
        raise UnreadableTopology(f"{documents[0].file}: no {KIND} in it")
    clusters: dict[str, _Cluster] = {}
    drafts: list[tuple[_Cluster, _Cluster, Node]] = []
    for resource in resources:
        drafts += _mirrors(resource, clusters, notes)
    aliases: dict[str, str] = {}
    for name in clusters:
        aliases[alias_of(name, aliases)] = name
    ends = {name: End(name, alias) for alias, name in aliases.items()}
    written = tuple(_written(ends[name], each, notes) for name, each in clusters.items())
    places = {ends[name].alias: each.where for name, each in clusters.items()}
    check_aliases({end: places[end.alias] for end in ends.values()}, notes)
    check_addresses(written, places, notes)
    pairs = _pairs(drafts, ends, notes)
    check_pairs(pairs, notes)
    metadata = scalar(child(resources[0], "metadata"), "name")
    return Imported(
        format="strimzi",
        name=alias_of(metadata.text if metadata is not None else "mirror-maker"),
        file=documents[0].file,
        text=documents[0].text,
        clusters=written,
        flows=tuple(flow_of(pair, notes) for pair in pairs),
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _resources(document: Document, notes: Notes) -> Iterator[Node]:
    for tree in documents_of(document, notes):
        items = child(tree, "items") if tree.kind == "map" else tree
        for each in (tree, *(items.items if items is not None else ())):
            if each.kind == "map" and (kind := scalar(each, "kind")) is not None and kind.text == KIND:
                yield each


def _mirrors(resource: Node, clusters: dict[str, _Cluster], notes: Notes) -> Iterator[tuple[_Cluster, _Cluster, Node]]:
    """(source, target, mirror) of one resource; fills `clusters`."""
    spec = child(resource, "spec")
    if spec is None or spec.kind != "map":
        notes.say("SYN012", f"the {KIND} has no `spec`", resource.span)
        return
    _unknown(spec, "spec", _SPEC, notes)
    for key, _ in spec.entries:
        if key.text in _SPEC - {"clusters", "connectCluster", "target", "mirrors"}:
            notes.leave(
                f"`spec.{key.text}`", "how Kubernetes runs MirrorMaker; Watershed has its own workers", key.span
            )
    for index, each in enumerate(_list(spec, "clusters")):
        _declare(each, f"spec.clusters[{index}]", clusters, notes)
    target = child(spec, "target")
    only = _declare(target, "spec.target", clusters, notes) if target is not None else None
    host = scalar(spec, "connectCluster", "spec")
    if host is not None and host.text not in clusters:
        near = nearest(host.text, clusters)
        clue = f"did you mean `{near}`?" if near else f"declared: {', '.join(sorted(clusters)) or 'none'}"
        notes.say(
            "CLU101", f"`spec.connectCluster` names `{host.text}`, which `spec.clusters` does not", host.span, clue
        )
    mirrors = _list(spec, "mirrors")
    if not mirrors:
        notes.say("SYN012", "the resource has no `spec.mirrors`: nothing is copied", key_span(spec, "mirrors"))
    for index, mirror in enumerate(mirrors):
        path = f"spec.mirrors[{index}]"
        _unknown(mirror, path, _MIRROR, notes)
        source = _end(mirror, path, "source", clusters, notes)
        to = only if only is not None else _end(mirror, path, "target", clusters, notes)
        if source is None or to is None:
            continue
        _check_host(host, mirror, source, to, notes)
        if source.name == to.name:
            notes.say("CLU107", f"`{path}` copies cluster `{source.name}` to itself", mirror.span)
            continue
        yield source, to, mirror


def _declare(node: Node, path: str, clusters: dict[str, _Cluster], notes: Notes) -> _Cluster | None:
    alias = scalar(node, "alias", path)
    if alias is None:
        notes.say("SYN012", f"`{path}` has no `alias`", node.span)
        return None
    config = settings_of(child(node, "config"), f"{path}.config", notes)
    literal_secrets(list(config.values()), notes)
    for key, said in list(config.items()):
        if _FORBIDDEN.fullmatch(key) and key not in _ALLOWED:
            notes.say(
                "SYN003",
                f"`{said.name}` has no effect: Strimzi drops it",
                said.key,
                "say it with `tls`, `authentication` or `bootstrapServers`",
                severity="warning",
            )
            del config[key]
        elif key not in ("exactly.once.source.support",) and key not in _ALLOWED:
            notes.leave(f"`{said.name}`", keys.why_left(key) or "it says nothing about a connection", said.span)
    found = clusters.get(alias.text)
    if found is None:
        found = clusters[alias.text] = _Cluster(alias.text, node, config, alias.key)
    else:
        one, other = scalar(found.node, "bootstrapServers"), scalar(node, "bootstrapServers")
        if one is not None and other is not None and one.text != other.text:
            notes.say(
                "CLU102",
                f"two clusters have the alias `{alias.text}`: `{one.text}` and `{other.text}`",
                other.span,
                "one alias is one cluster; the first was imported",
                more=(Label(one.span, "first here"),),
            )
        found.config |= config
    return found


def _end(mirror: Node, path: str, end: str, clusters: dict[str, _Cluster], notes: Notes) -> _Cluster | None:
    """`source: {alias…}` of v1, or the alias under `sourceCluster` of v1beta2."""
    whole = child(mirror, end)
    if whole is not None and whole.kind == "map":
        return _declare(whole, f"{path}.{end}", clusters, notes)
    named = scalar(mirror, f"{end}Cluster", path)
    if named is None:
        notes.say("SYN012", f"`{path}` says no `{end}Cluster`", mirror.span)
        return None
    found = clusters.get(named.text)
    if found is None:
        near = nearest(named.text, clusters)
        clue = f"did you mean `{near}`?" if near else f"declared: {', '.join(sorted(clusters)) or 'none'}"
        notes.say("CLU101", f"`{named.name}` names `{named.text}`, which `spec.clusters` does not", named.span, clue)
    return found


def _check_host(host: Said | None, mirror: Node, source: _Cluster, target: _Cluster, notes: Notes) -> None:
    """Connect writes to the cluster it runs on, whatever the mirror calls its target (strimzi-kafka-operator#9905)."""
    if host is None or host.text == target.name:
        return
    back = f"; it writes the copies back into `{source.name}`" if host.text == source.name else ""
    notes.say(
        "CLU107",
        f"`connectCluster` is `{host.text}`, but a mirror's target is `{target.name}`: Connect writes to the cluster "
        f"it runs on{back}",
        host.span,
        f"set `connectCluster: {target.name}`, and make one resource for each target",
        more=(Label(key_span(mirror, "targetCluster"), "this mirror"),),
        ids=(source.name, target.name),
    )


def _written(end: End, cluster: _Cluster, notes: Notes) -> ImportedCluster:
    bootstrap = bootstrap_of(end.alias, scalar(cluster.node, "bootstrapServers"), notes)
    return ImportedCluster(end.alias, bootstrap, security=security_in(end.alias, cluster.node, cluster.config, notes))


def _pairs(drafts: list[tuple[_Cluster, _Cluster, Node]], ends: dict[str, End], notes: Notes) -> list[Pair]:
    pairs: dict[tuple[str, str], Pair] = {}
    ways = reachable((source.name, target.name) for source, target, _ in drafts)
    for source, target, mirror in drafts:
        config = config_in(mirror, notes)
        support = target.config.get("exactly.once.source.support")
        if support is not None:
            config["exactly.once.source.support"] = support
        main = child(mirror, "sourceConnector")
        where = key_span(mirror, "sourceCluster" if child(mirror, "sourceCluster") else "source")
        if main is None:
            notes.say(
                "GRF216",
                f"the mirror {source.name}->{target.name} has no `sourceConnector`: nothing is copied",
                where,
                "write `sourceConnector: {}` at least; the imported flow is paused",
                severity="warning",
            )
        key = (source.name, target.name)
        if key in pairs:
            notes.say("GRF214", f"a second mirror {source.name}->{target.name}; the first was imported", where)
            continue
        returns = source.name in ways.get(target.name, set())
        pairs[key] = Pair(ends[source.name], ends[target.name], config, where, running_in(mirror), tuple(ends), returns)
    return list(pairs.values())


def _unknown(node: Node, path: str, known: frozenset[str], notes: Notes) -> None:
    for key, _ in node.entries:
        if key.text not in known:
            near = nearest(key.text, known)
            notes.say("SYN003", f"`{path}` has no `{key.text}`", key.span, f"did you mean `{near}`?" if near else "")


def _list(node: Node, name: str) -> list[Node]:
    found = child(node, name)
    return [each for each in found.items if each.kind == "map"] if found is not None and found.kind == "list" else []
