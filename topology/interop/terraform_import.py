"""Cluster links of Confluent's Terraform provider: `confluent_cluster_link`, `confluent_kafka_mirror_topic`, and the
clusters that they refer to. All files of a directory are one module.

Source: the arguments of these resources in confluentinc/terraform-provider-confluent, docs/resources. One resource is
one direction: a bidirectional link is two resources and two flows, a source-initiated link two resources and one flow.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan
from watershed.topology.interop import linking_settings
from watershed.topology.interop.bootstrap_servers import parse_bootstrap_servers
from watershed.topology.interop.client_security import name_secret_variable
from watershed.topology.interop.hcl import HclBlock, HclValue
from watershed.topology.interop.import_formats import ForeignDocument
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedTopology
from watershed.topology.interop.linking_flow import ClusterLink, MirrorTopic, build_link_flows
from watershed.topology.interop.terraform_module import TerraformModule, build_terraform_module
from watershed.topology.interop.topology_writer import build_cluster_alias

_LINK = "confluent_cluster_link"
_MIRROR = "confluent_kafka_mirror_topic"
_CLUSTER = "confluent_kafka_cluster"
_TOP = re.compile(
    r'^[ \t]*(?:(?:resource|data)[ \t]+"[^"\n]*"[ \t]+"[^"\n]*"|(?:variable|module|provider|output)[ \t]+"[^"\n]*"'
    r"|locals|terraform)[ \t]*\{",
    re.MULTILINE,
)
_LINK_ARGUMENTS = {
    "link_name", "link_mode", "connection_mode", "config", "count", "for_each", "depends_on", "provider"
}  # fmt: skip
_ID_WORDS = re.compile(r"(?:_|-|^)(?:kafka|cluster|id|ids|cc)(?=_|-|$)")


@dataclass(slots=True)
class TerraformClusters:
    """What links say about clusters, by alias."""

    module: TerraformModule
    notes: ImportNotes
    aliases: dict[str, str] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    regions: dict[str, str] = field(default_factory=dict)
    bootstrap: dict[str, ForeignSetting] = field(default_factory=dict)
    credentials: set[str] = field(default_factory=set)

    def all(self) -> tuple[ImportedCluster, ...]:
        """The clusters that the links name, sorted by alias."""
        return tuple(
            ImportedCluster(
                alias,
                parse_bootstrap_servers(alias, self.bootstrap.get(alias), self.notes),
                self.ids.get(alias),
                self.regions.get(alias),
                self._security(alias),
            )
            for alias in sorted(self.aliases)
        )

    def _security(self, alias: str) -> dict[str, object]:
        """Confluent Cloud takes an API key over SASL_SSL, and nothing else by this provider."""
        if alias not in self.credentials:
            return {}
        return {"protocol": "SASL_SSL", "mechanism": "PLAIN", "credentials": {"env": name_secret_variable(alias)}}


def recognises(document: ForeignDocument) -> bool:
    """Any Terraform file: those beside the links hold the variables and clusters that links refer to."""
    return document.text.lstrip()[:1] not in ("{", "[") and _TOP.search(document.text) is not None


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """Raises UnreadableTopology when no file holds a link that can be read."""
    notes = ImportNotes()
    module = build_terraform_module(documents, notes)
    clusters = TerraformClusters(module, notes)
    links = _merged([each for block in module.resources(_LINK) for each in _links(block, clusters)], notes)
    if not links and not any(module.resources(_LINK)):
        first = next(iter(notes.problems), None)
        what = f"; line {first.labels[0].span.line}: {first.message}" if first is not None else ""
        raise UnreadableTopology(f"{documents[0].file}: Terraform without a `{_LINK}`{what}")
    for block in module.resources(_MIRROR):
        _add_mirrors(block, links, clusters)
    _others(module, notes)
    first_file = documents[0]
    single = len(documents) == 1 and PurePath(first_file.file).stem not in ("main", "")
    name = PurePath(first_file.file).stem if single else PurePath(first_file.file).parent.name
    return ImportedTopology(
        format="terraform",
        name=build_cluster_alias(name or "links"),
        file=first_file.file,
        text=first_file.text,
        clusters=clusters.all(),
        flows=build_link_flows([each.link for each in links], notes),
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


@dataclass(frozen=True, slots=True)
class _Resource:
    """`address` as `confluent_cluster_link.main`. Of a source-initiated link, outward is the half at its source, and
    waiting the half at its destination."""

    address: str
    link: ClusterLink
    outward: bool = False
    waiting: bool = False


def _links(block: HclBlock, clusters: TerraformClusters) -> list[_Resource]:
    module, notes = clusters.module, clusters.notes
    address = ".".join(block.labels)
    if not _check_resource_exists(block, clusters):
        return []
    for name, attribute in block.attributes.items():
        if name not in _LINK_ARGUMENTS:
            notes.add_problem("SYN003", f"`{address}`: unknown argument `{name}`", attribute.key, severity="warning")
    name = module.text(block.value("link_name")) or block.labels[-1]
    if block.value("link_name") is None:
        notes.add_problem("SYN012", f"`{address}` needs `link_name`", block.span)
    mode = _word(block, "link_mode", linking_settings.LINK_MODES, clusters)
    connection = _word(block, "connection_mode", linking_settings.LINK_CONNECTION_MODES, clusters)
    both = mode == "BIDIRECTIONAL"
    ends = ("remote_kafka_cluster", "local_kafka_cluster") if both else _ONE_WAY
    for wrong in _ONE_WAY if both else ("remote_kafka_cluster", "local_kafka_cluster"):
        if (found := block.block(wrong)) is not None:
            message = f"`{address}`: `{wrong}` does not belong to `link_mode` {mode}"
            notes.add_problem("SYN009", message, found.span, f"expected {' and '.join(f'`{each}`' for each in ends)}")
    source, target = (_end(block, end, address, clusters) for end in ends)
    config = _config(block, address, clusters)
    linking_settings.check_link_settings(config, notes)
    if mode == "SOURCE" and connection == "INBOUND":
        message = f"`{address}`: a link with `link_mode` SOURCE connects from the source, so it is OUTBOUND"
        notes.add_problem("SYN009", message, block.span, "INBOUND belongs to the resource at the destination")
    link = ClusterLink(name, source, target, block.span, config, bidirectional=both)
    return [_Resource(address, link, mode == "SOURCE", mode == "DESTINATION" and connection == "INBOUND")]


_ONE_WAY = ("source_kafka_cluster", "destination_kafka_cluster")


def _merged(found: list[_Resource], notes: ImportNotes) -> list[_Resource]:
    """A source-initiated link once, with the settings of its destination's resource."""
    inward: dict[tuple[str, str, str], list[_Resource]] = {}
    for each in found:
        if not each.outward:
            inward.setdefault((each.link.name, each.link.source, each.link.target), []).append(each)
    outward = {(each.link.name, each.link.source, each.link.target) for each in found if each.outward}
    out = []
    for each in found:
        if each.waiting and (each.link.name, each.link.source, each.link.target) not in outward:
            why = "this is the half at the destination, which waits; the resource at the source is not in these files"
            notes.add_not_carried(f"the other half of `{each.address}`", why, each.link.where)
        same = inward.get((each.link.name, each.link.source, each.link.target), [])
        if each.outward and same:
            for key, said in each.link.config.items():
                same[0].link.config.setdefault(key, said)
            continue
        if each.outward:
            why = "this is the half at the source; the resource at the destination is not in these files"
            notes.add_not_carried(f"the other half of `{each.address}`", why, each.link.where)
        out.append(each)
    return out


def _end(block: HclBlock, type_: str, address: str, clusters: TerraformClusters) -> str:
    """The alias of a cluster."""
    module, notes = clusters.module, clusters.notes
    role = "source" if type_ in ("source_kafka_cluster", "remote_kafka_cluster") else "target"
    inner = block.block(type_)
    if inner is None:
        notes.add_problem("SYN012", f"`{address}` needs a block `{type_}`", block.span)
        alias = f"{build_cluster_alias(block.labels[-1])}-{role}"
        clusters.aliases.setdefault(alias, alias)
        notes.add_not_carried(
            f"the {role} of `{address}`, called {alias}", "no block says which cluster it is", block.span
        )
        return alias
    alias = _alias(inner, f"{build_cluster_alias(block.labels[-1])}-{role}", clusters)
    endpoint = inner.value("bootstrap_endpoint")
    text = module.text(endpoint)
    if endpoint is not None and text is not None:
        said = ForeignSetting(f"{address}.{type_}.bootstrap_endpoint", text, endpoint.span, endpoint.span)
        clusters.bootstrap.setdefault(alias, said)
    credentials = inner.block("credentials")
    if credentials is not None:
        _credentials(credentials, f"{address}.{type_}", alias, clusters)
    return alias


def _credentials(block: HclBlock, where: str, alias: str, clusters: TerraformClusters) -> None:
    """Nothing of a key or a secret is kept; only that there is one."""
    notes = clusters.notes
    clusters.credentials.add(alias)
    why = (
        f"the topology holds references only; provide `key:secret` in the environment variable "
        f"{name_secret_variable(alias)}"
    )
    notes.add_not_carried(f"`{where}.credentials`", why, block.span)
    secret = block.value("secret")
    found = clusters.module.known(secret)
    if secret is not None and found is not None and found.kind == "string" and found.text and not found.interpolated:
        message = f"`{where}.credentials.secret` is a secret in the file itself"
        help_ = "take it from a sensitive variable without a default, or from `confluent_api_key`; change the secret"
        notes.add_problem("SEC601", message, found.span, help_)


def _alias(block: HclBlock, fallback: str, clusters: TerraformClusters) -> str:
    """Of the block that `id` refers to its name; of a variable its name without `cluster_id`; of a text the text."""
    module, notes = clusters.module, clusters.notes
    value = block.value("id")
    if value is None:
        notes.add_problem("SYN012", f"`{block.type}` needs `id`", block.span)
    address = module.address(value)
    literal = module.text(value)
    referred = module.block(address)
    if address is not None and address.partition(".")[0] != "var":
        parts = [part for part in address.split(".") if part not in ("data", "module", _CLUSTER)]
        telling = [part for part in parts if _ID_WORDS.sub("", part).strip("_-")]
        identity, name = address, (telling or parts or [address])[-1]
    elif address is not None and value is not None:
        plain = value.text.partition(".")[2].replace(".", "_")
        identity, name = value.text, _ID_WORDS.sub("", plain).strip("_-") or plain
        if literal is None:
            why = "a variable without a default; the alias is made of its name, and `cluster_id` is not pinned"
            notes.add_not_carried(f"`{value.text}`", why, value.span)
    elif literal is not None:
        identity, name = literal, literal
    else:
        identity, name = fallback, fallback
        place = value.span if value is not None else block.span
        notes.add_not_carried(f"the cluster called {fallback}", "an expression says which it is; rename it", place)
    if identity not in clusters.named:
        fresh = build_cluster_alias(name, clusters.aliases)
        clusters.named[identity] = fresh
        clusters.aliases[fresh] = identity
    alias = clusters.named[identity]
    if literal is not None and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", literal):
        clusters.ids.setdefault(alias, literal)
    region = module.text(referred.value("region")) if referred is not None else None
    if region is not None:
        clusters.regions.setdefault(alias, region)
    return alias


def _config(block: HclBlock, address: str, clusters: TerraformClusters) -> dict[str, ForeignSetting]:
    """Settings by key; what cannot be known without running Terraform is listed."""
    module, notes = clusters.module, clusters.notes
    said = block.value("config")
    value = module.known(said)
    out: dict[str, ForeignSetting] = {}
    if value is None or said is None:
        return out
    maps = [value]
    if value.kind == "call" and value.text == "merge":  # the last one that says a key wins
        found = [module.known(each) for each in value.items]
        maps = [each for each in found if each is not None]
    for each_map in maps:
        if each_map.kind != "map":
            out.clear()
            notes.add_not_carried(
                f"`{address}.config`", "an expression; write the settings out to import them", each_map.span
            )
        else:
            _add_settings(each_map, address, out, clusters)
    return out


def _add_settings(value: HclValue, address: str, out: dict[str, ForeignSetting], clusters: TerraformClusters) -> None:
    """Over what earlier maps said; a value that is not known takes away theirs."""
    module, notes = clusters.module, clusters.notes
    for name, key, each in value.entries:
        text = module.text(each)
        if name is None or text is None:
            shown = f"`{address}.config`: {name or 'a computed key'}"
            notes.add_not_carried(shown, "an expression that is known only when Terraform runs", each.span)
            out.pop(name, None) if name is not None else out.clear()
        else:
            found = module.known(each)
            out[name] = ForeignSetting(name, text, found.span if found is not None else each.span, key)


def _add_mirrors(block: HclBlock, links: list[_Resource], clusters: TerraformClusters) -> None:
    module, notes = clusters.module, clusters.notes
    address = ".".join(block.labels)
    if not _check_resource_exists(block, clusters):
        return
    topic, link = block.block("source_kafka_topic"), block.block("cluster_link")
    names = _topics(block, topic.value("topic_name") if topic is not None else None, clusters)
    if topic is None or link is None:
        notes.add_problem("SYN012", f"`{address}` needs blocks `source_kafka_topic` and `cluster_link`", block.span)
        return
    if names is None:
        notes.add_not_carried(f"`{address}`", "its topics are known only when Terraform runs", topic.span)
        return
    at = block.block("kafka_cluster")
    target = _alias(at, f"{build_cluster_alias(block.labels[-1])}-target", clusters) if at is not None else None
    chosen = _link_of(link.value("link_name"), target, links, clusters)
    if chosen is None:
        notes.add_not_carried(f"`{address}`", "no link in these files has its `link_name` and cluster", link.span)
        return
    status = (module.text(block.value("status")) or "ACTIVE").upper()
    named = module.text(block.value("mirror_topic_name"))
    called = named if len(names) == 1 else None
    renamed = block.value("mirror_topic_name")
    if renamed is not None and called is None:
        why = "known only when Terraform runs; the flow's names are those of `cluster.link.prefix`"
        notes.add_not_carried(f"`{address}.mirror_topic_name`", why, renamed.span)
    mirrors = tuple(MirrorTopic(each, topic.span, called, status) for each in names)
    index = links.index(chosen)
    links[index] = replace(chosen, link=replace(chosen.link, mirrors=(*chosen.link.mirrors, *mirrors)))


def _topics(block: HclBlock, value: HclValue | None, clusters: TerraformClusters) -> list[str] | None:
    """One name, or those of `for_each`."""
    each = clusters.module.text(value)
    if each is not None:
        return [each]
    loop = clusters.module.known(block.value("for_each"))
    if value is None or value.kind != "reference" or loop is None:
        return None
    if value.text == "each.key" or (value.text == "each.value" and loop.kind == "list"):
        return clusters.module.texts(loop)
    if value.text == "each.value" and loop.kind == "map":
        values = [clusters.module.text(item) for _, _, item in loop.entries]
        return [text for text in values if text is not None] if None not in values else None
    return None


def _link_of(
    value: HclValue | None, target: str | None, links: list[_Resource], clusters: TerraformClusters
) -> _Resource | None:
    """By the resource that `link_name` refers to, or by name; of several, the one at the mirror's cluster."""
    address, name = clusters.module.address(value), clusters.module.text(value)
    fitting = [each for each in links if each.address == address] or [each for each in links if each.link.name == name]
    if not fitting and address is not None:  # the source's half of a link is merged into the other one
        outward = clusters.module.block(address)
        called = clusters.module.text(outward.value("link_name")) if outward is not None else None
        fitting = [each for each in links if called is not None and each.link.name == called]
    if target is None or any(each.link.target == target for each in fitting):
        fitting = [each for each in fitting if target is None or each.link.target == target]
        return fitting[0] if len(fitting) == 1 else None
    other = next((each for each in fitting if each.link.bidirectional and each.link.source == target), None)
    if other is None:
        return None
    # the two ends of a bidirectional link have one name; `link_name` may refer to either
    back = next((each for each in links if each.link.name == other.link.name and each.link.target == target), None)
    if back is None:
        link = ClusterLink(other.link.name, other.link.target, target, other.link.where, {}, bidirectional=True)
        back = _Resource(f"{other.address} (back)", link)
        links.append(back)
    return back


def _word(block: HclBlock, name: str, words: tuple[str, ...], clusters: TerraformClusters) -> str:
    """The first of the words is Terraform's default."""
    value = block.value(name)
    if value is None:
        return words[0]
    text = clusters.module.text(value)
    if text is None:
        why = f"an expression that is known only when Terraform runs; taken for {words[0]}"
        clusters.notes.add_not_carried(f"`{'.'.join(block.labels)}.{name}`", why, value.span)
        return words[0]
    if text not in words:
        clusters.notes.add_problem("SYN011", f"`{name}`: expected one of {', '.join(words)}", value.span)
        return words[0]
    return text


def _check_resource_exists(block: HclBlock, clusters: TerraformClusters) -> bool:
    """False if `count` is 0. Notes `count`, `for_each` and dynamic blocks that only Terraform can evaluate."""
    address, notes = ".".join(block.labels), clusters.notes
    for inner in block.all("dynamic"):
        notes.add_not_carried(f"`{address}`: dynamic block", "it is known only when Terraform runs", inner.span)
    if block.labels[0] == _LINK and (loop := block.value("for_each")) is not None:
        notes.add_not_carried(f"`{address}`", "`for_each` makes several links of it; one was imported", loop.span)
    count = block.value("count")
    if count is None:
        return True
    text = clusters.module.text(count)
    if text == "0":
        notes.add_not_carried(f"`{address}`", "its `count` is 0, so it does not exist", count.span)
        return False
    if text != "1":
        notes.add_not_carried(f"`{address}`", "its `count` is not known or not 1; it was imported once", count.span)
    return True


def _others(module: TerraformModule, notes: ImportNotes) -> None:
    """Resources of other types and modules, in one line each."""
    types = Counter(block.labels[0] for block in module.blocks if block.type == "resource" and len(block.labels) == 2)
    for ours in (_LINK, _MIRROR, _CLUSTER):
        types.pop(ours, None)
    if types:
        first: FileSpan = next(
            block.span for block in module.blocks if block.type == "resource" and block.labels[0] in types
        )
        shown = ", ".join(f"{name} ({count})" for name, count in sorted(types.items()))
        notes.add_not_carried(f"other resources: {shown}", "only links, mirror topics and clusters are imported", first)
    for block in module.blocks:
        if block.type == "module":
            shown = block.labels[0] if block.labels else "?"
            notes.add_not_carried(f"module `{shown}`", "modules are not followed; import their directories", block.span)
