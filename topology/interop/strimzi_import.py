"""Strimzi's KafkaMirrorMaker2, v1beta2 (`clusters`, `connectCluster`) and v1 (`target`, `mirrors[].source`).

Source: strimzi/strimzi-kafka-operator, api/…/model/mirrormaker2 and KafkaMirrorMaker2Connectors.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop import mm2_settings
from watershed.topology.interop.bootstrap_servers import parse_bootstrap_servers
from watershed.topology.interop.client_security import check_literal_secrets
from watershed.topology.interop.import_checks import (
    check_cluster_aliases,
    check_imported_clusters,
    check_mirror_pairs,
    check_replication_factor,
    find_reachable_clusters,
)
from watershed.topology.interop.import_formats import ForeignDocument, find_child_node
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedTopology
from watershed.topology.interop.mm2_flow import build_mirror_flow
from watershed.topology.interop.mm2_pair import MirrorCluster, MirrorPair
from watershed.topology.interop.strimzi_mirror import collect_mirror_settings, is_mirror_enabled, is_mirror_running
from watershed.topology.interop.strimzi_security import build_strimzi_security
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.interop.yaml_settings import (
    collect_settings,
    find_key_span,
    find_scalar_setting,
    parse_yaml_documents,
    report_unknown_fields,
)
from watershed.topology.spelling import suggest_word
from watershed.topology.yaml_tree import YamlNode

MIRROR_MAKER_KIND = "KafkaMirrorMaker2"
_KIND = re.compile(rf"""(?m)["']?kind["']?\s*:\s*["']?{MIRROR_MAKER_KIND}\b""")
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
    r"(?:ssl|sasl|security|listeners|rest|plugin\.path|bootstrap\.servers)(?:\..*)?"
    r"|(?:producer|consumer|admin)\.interceptor\.classes"
)
# fields of `target` in v1, which then drops them from its `config`; in v1beta2 they are settings like others
_FIELDS_OF_V1 = {
    "group.id": "groupId",
    "config.storage.topic": "configStorageTopic",
    "offset.storage.topic": "offsetStorageTopic",
    "status.storage.topic": "statusStorageTopic",
}
_ALLOWED = {"ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "ssl.protocol", "ssl.enabled.protocols"}


@dataclass(slots=True)
class _Cluster:
    """`node` is its mapping; `config` what Strimzi takes of its `config`."""

    name: str
    node: YamlNode
    config: dict[str, ForeignSetting]
    where: FileSpan


def recognises(document: ForeignDocument) -> bool:
    """True if the file holds a Strimzi resource of kind KafkaMirrorMaker2."""
    notes = ImportNotes()
    if _KIND.search(document.text) is None:
        return False
    found = any(True for _ in _resources(document, notes))
    return found or any(each.code == "SYN001" for each in notes.problems)  # `read` says where it is broken


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """All resources of the files form one topology; the same alias is the same cluster.

    Raises UnreadableTopology when there is none."""
    notes = ImportNotes()
    resources = [each for document in documents for each in _resources(document, notes)]
    if not resources:
        broken = next((each for each in notes.problems if each.code == "SYN001"), None)
        if broken is not None:
            raise UnreadableTopology(f"{broken.labels[0].span}: {broken.message}. {broken.help}".rstrip(". "))
        raise UnreadableTopology(f"{documents[0].file}: no {MIRROR_MAKER_KIND} in it")
    clusters: dict[str, _Cluster] = {}
    drafts: list[tuple[_Cluster, _Cluster, YamlNode]] = []
    for resource in resources:
        drafts += _mirrors(resource, clusters, notes)
    aliases: dict[str, str] = {}
    for name in clusters:
        aliases[build_cluster_alias(name, aliases)] = name
    ends = {name: MirrorCluster(name, alias) for alias, name in aliases.items()}
    written = tuple(_written(ends[name], each, notes) for name, each in clusters.items())
    places = {ends[name].alias: each.where for name, each in clusters.items()}
    check_cluster_aliases({end: places[end.alias] for end in ends.values()}, notes)
    check_imported_clusters(written, places, notes)
    pairs = _pairs(drafts, ends, notes)
    check_mirror_pairs(pairs, notes)
    targets = {each.alias: each for each in written}
    for pair in pairs:
        check_replication_factor(pair.config.get("replication.factor"), targets[pair.target.alias], notes)
    metadata = find_scalar_setting(find_child_node(resources[0], "metadata"), "name")
    return ImportedTopology(
        format="strimzi",
        name=build_cluster_alias(metadata.text if metadata is not None else "mirror-maker"),
        file=documents[0].file,
        text=documents[0].text,
        clusters=written,
        flows=tuple(build_mirror_flow(pair, notes) for pair in pairs),
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _resources(document: ForeignDocument, notes: ImportNotes) -> Iterator[YamlNode]:
    for tree in parse_yaml_documents(document, notes):
        items = find_child_node(tree, "items") if tree.kind == "map" else tree
        for each in (tree, *(items.items if items is not None else ())):
            kind = find_scalar_setting(each, "kind")
            if kind is not None and kind.text == MIRROR_MAKER_KIND:
                yield each
            elif kind is not None and not (each is tree and items is not None):
                why = f"only {MIRROR_MAKER_KIND} is imported"
                notes.add_not_carried(f"a resource of kind `{kind.text}`", why, kind.span)


def _mirrors(
    resource: YamlNode, clusters: dict[str, _Cluster], notes: ImportNotes
) -> Iterator[tuple[_Cluster, _Cluster, YamlNode]]:
    """(source, target, mirror) of one resource; fills `clusters`."""
    spec = find_child_node(resource, "spec")
    if spec is None or spec.kind != "map":
        notes.add_problem("SYN012", f"the {MIRROR_MAKER_KIND} has no `spec`", resource.span)
        return
    report_unknown_fields(spec, "spec", _SPEC, notes)
    for key, _ in spec.entries:
        if key.text in _SPEC - {"clusters", "connectCluster", "target", "mirrors"}:
            notes.add_not_carried(
                f"`spec.{key.text}`", "how Kubernetes runs MirrorMaker; Watershed has its own workers", key.span
            )
    for index, each in enumerate(_list(spec, "clusters")):
        _declare(each, f"spec.clusters[{index}]", clusters, notes)
    target = find_child_node(spec, "target")
    only = _declare(target, "spec.target", clusters, notes) if target is not None else None
    host = find_scalar_setting(spec, "connectCluster", "spec")
    if host is not None and host.text not in clusters:
        near = suggest_word(host.text, clusters)
        clue = f"did you mean `{near}`?" if near else f"declared: {', '.join(sorted(clusters)) or 'none'}"
        notes.add_problem(
            "CLU101", f"`spec.connectCluster` names `{host.text}`, which `spec.clusters` does not", host.span, clue
        )
    mirrors = _list(spec, "mirrors")
    if not mirrors:
        notes.add_problem(
            "SYN012", "the resource has no `spec.mirrors`: nothing is copied", find_key_span(spec, "mirrors")
        )
    for index, mirror in enumerate(mirrors):
        path = f"spec.mirrors[{index}]"
        report_unknown_fields(mirror, path, _MIRROR, notes)
        source = _end(mirror, path, "source", clusters, notes)
        to = only if only is not None else _end(mirror, path, "target", clusters, notes)
        if source is None or to is None:
            continue
        _check_host(host, mirror, source, to, notes)
        if source.name == to.name:
            notes.add_problem("CLU107", f"`{path}` copies cluster `{source.name}` to itself", mirror.span)
            continue
        yield source, to, mirror


def _declare(node: YamlNode, path: str, clusters: dict[str, _Cluster], notes: ImportNotes) -> _Cluster | None:
    alias = find_scalar_setting(node, "alias", path)
    if alias is None:
        notes.add_problem("SYN012", f"`{path}` has no `alias`", node.span)
        return None
    config = collect_settings(find_child_node(node, "config"), f"{path}.config", notes)
    check_literal_secrets(list(config.values()), notes)
    for key, said in list(config.items()):
        instead = _FIELDS_OF_V1.get(key) if path == "spec.target" else None
        if instead is not None or (_FORBIDDEN.fullmatch(key) and key not in _ALLOWED):
            notes.add_problem(
                "SYN003",
                f"`{said.name}` has no effect: Strimzi drops it",
                said.key,
                f"write `spec.target.{instead}`"
                if instead is not None
                else "say it with `tls`, `authentication` or `bootstrapServers`",
                severity="warning",
            )
            del config[key]
        elif key not in ("exactly.once.source.support",) and key not in _ALLOWED:
            notes.add_not_carried(
                f"`{said.name}`",
                mm2_settings.explain_not_carried(key) or "it says nothing about a connection",
                said.span,
            )
    found = clusters.get(alias.text)
    if found is None:
        found = clusters[alias.text] = _Cluster(alias.text, node, config, alias.key)
    else:
        one, other = find_scalar_setting(found.node, "bootstrapServers"), find_scalar_setting(node, "bootstrapServers")
        if one is not None and other is not None and one.text != other.text:
            notes.add_problem(
                "CLU102",
                f"two clusters have the alias `{alias.text}`: `{one.text}` and `{other.text}`",
                other.span,
                "one alias is one cluster; the first was imported",
                more=(Label(one.span, "first here"),),
            )
        found.config |= config
    return found


def _end(mirror: YamlNode, path: str, end: str, clusters: dict[str, _Cluster], notes: ImportNotes) -> _Cluster | None:
    """`source: {alias…}` of v1, or the alias under `sourceCluster` of v1beta2."""
    whole = find_child_node(mirror, end)
    if whole is not None and whole.kind == "map":
        return _declare(whole, f"{path}.{end}", clusters, notes)
    named = find_scalar_setting(mirror, f"{end}Cluster", path)
    if named is None:
        notes.add_problem("SYN012", f"`{path}` says no `{end}Cluster`", mirror.span)
        return None
    found = clusters.get(named.text)
    if found is None:
        near = suggest_word(named.text, clusters)
        clue = f"did you mean `{near}`?" if near else f"declared: {', '.join(sorted(clusters)) or 'none'}"
        notes.add_problem(
            "CLU101", f"`{named.name}` names `{named.text}`, which `spec.clusters` does not", named.span, clue
        )
    return found


def _check_host(
    host: ForeignSetting | None, mirror: YamlNode, source: _Cluster, target: _Cluster, notes: ImportNotes
) -> None:
    """Connect writes to the cluster it runs on, whatever the mirror calls its target (strimzi-kafka-operator#9905)."""
    if host is None or host.text == target.name:
        return
    back = f"; it writes the copies back into `{source.name}`" if host.text == source.name else ""
    notes.add_problem(
        "CLU107",
        f"`connectCluster` is `{host.text}`, but a mirror's target is `{target.name}`: Connect writes to the cluster "
        f"it runs on{back}",
        host.span,
        f"set `connectCluster: {target.name}`, and make one resource for each target",
        more=(Label(find_key_span(mirror, "targetCluster"), "this mirror"),),
        ids=(source.name, target.name),
    )


def _written(end: MirrorCluster, cluster: _Cluster, notes: ImportNotes) -> ImportedCluster:
    bootstrap = parse_bootstrap_servers(end.alias, find_scalar_setting(cluster.node, "bootstrapServers"), notes)
    return ImportedCluster(
        end.alias, bootstrap, security=build_strimzi_security(end.alias, cluster.node, cluster.config, notes)
    )


def _pairs(
    drafts: list[tuple[_Cluster, _Cluster, YamlNode]], ends: dict[str, MirrorCluster], notes: ImportNotes
) -> list[MirrorPair]:
    pairs: dict[tuple[str, str], MirrorPair] = {}
    ways = find_reachable_clusters(
        (source.name, target.name) for source, target, mirror in drafts if is_mirror_enabled(mirror)
    )
    for source, target, mirror in drafts:
        config = collect_mirror_settings(mirror, notes)
        support = target.config.get("exactly.once.source.support")
        if support is not None:
            config["exactly.once.source.support"] = support
        main = find_child_node(mirror, "sourceConnector")
        where = find_key_span(mirror, "sourceCluster" if find_child_node(mirror, "sourceCluster") else "source")
        if main is None:
            notes.add_problem(
                "GRF216",
                f"the mirror {source.name}->{target.name} has no `sourceConnector`: nothing is copied",
                where,
                "write `sourceConnector: {}` at least, and import again; no flow is imported",
                severity="warning",
            )
        elif not is_mirror_enabled(mirror):
            why = "its source connector is not enabled and copies nothing, so it is no flow"
            notes.add_not_carried(f"the mirror {source.name}->{target.name}", why, where)
        if not is_mirror_enabled(mirror):
            continue
        key = (source.name, target.name)
        if key in pairs:
            notes.add_problem("GRF214", f"a second mirror {source.name}->{target.name}; the first was imported", where)
            continue
        returns = source.name in ways.get(target.name, set())
        pairs[key] = MirrorPair(
            ends[source.name],
            ends[target.name],
            config,
            where,
            is_mirror_running(mirror),
            tuple(ends),
            returns,
            has_checkpoints=find_child_node(mirror, "checkpointConnector") is not None,
        )
    return list(pairs.values())


def _list(node: YamlNode, name: str) -> list[YamlNode]:
    found = find_child_node(node, name)
    return [each for each in found.items if each.kind == "map"] if found is not None and found.kind == "list" else []
