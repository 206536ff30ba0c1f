"""Cluster links as the command line takes them: one properties file a link (`kafka-cluster-links --config-file`,
`confluent kafka link create --config`), JSON files of filters, and the list of mirror topics
(`confluent kafka mirror list -o json`).

Such a file does not say what the link, its source and its target are called. A comment may, and the exporter writes it:

    # watershed: link=onprem-to-cloud source=onprem target=cloud

Further words: `source-bootstrap=`, `target-bootstrap=`, `source-id=`, `target-id=`, `mirror=orders,payments`. `link=`
begins a link, so that one file can hold several. Without the comment the link is called like the file, and its clusters
get placeholders, which are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan
from watershed.topology.interop import linking_settings, mm2_settings
from watershed.topology.interop.bootstrap_servers import parse_bootstrap_servers
from watershed.topology.interop.client_security import build_client_security, check_literal_secrets
from watershed.topology.interop.import_checks import check_imported_clusters
from watershed.topology.interop.import_formats import ForeignDocument, find_child_node
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedTopology
from watershed.topology.interop.java_properties import parse_properties
from watershed.topology.interop.linking_flow import ClusterLink, MirrorTopic, build_link_flows
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.interop.yaml_settings import find_scalar_setting
from watershed.topology.language.scalars import NAME_REGEX
from watershed.topology.spelling import suggest_word
from watershed.topology.yaml_tree import YamlNode

_COMMENT = re.compile(r"[ \t]*#[ \t]*watershed:[ \t]*(.*)")
_WORDS = ("link", "source", "target", "source-bootstrap", "target-bootstrap", "source-id", "target-id", "mirror")
_FILTERS = {
    "topicFilters": "auto.create.mirror.topics.filters",
    "groupFilters": "consumer.offset.group.filters",
    "aclFilters": "acl.filters",
}
_DISTINCT = re.compile(
    r"^[ \t]*(?:" + "|".join(re.escape(each) for each in sorted(linking_settings.LINK_ONLY_KEYS)) + r")[ \t]*[=: ]",
    re.MULTILINE,
)
_WORD = re.compile(r"(?<![^\s=])([^\s=]++)=(\S*)")
_COMMENTED = re.compile(r"^[ \t]*#[ \t]*watershed:[ \t]*link=", re.MULTILINE)


@dataclass(slots=True)
class _LinkHalf:
    """What one properties file says: a link as one of its two clusters has it. `words` are those of the comment."""

    name: str
    where: FileSpan
    config: dict[str, ForeignSetting]
    words: dict[str, ForeignSetting] = field(default_factory=dict)
    mirrors: list[MirrorTopic] = field(default_factory=list)
    source: str = ""
    target: str = ""

    @property
    def mode(self) -> str:
        said = self.config.get("link.mode")
        return said.text.strip().upper() if said is not None else "DESTINATION"

    @property
    def connection(self) -> str:
        said = self.config.get("connection.mode")
        return said.text.strip().upper() if said is not None else "OUTBOUND"

    @property
    def remote(self) -> str:
        """The end that `bootstrap.servers` is about."""
        return "target" if self.mode == "SOURCE" else "source"


def recognises(document: ForeignDocument) -> bool:
    """True for the properties, or the JSON filters, of a Confluent cluster link."""
    if document.text.lstrip()[:1] in ("{", "["):
        return _filters(document) is not None or bool(_mirror_entries(document))
    if re.search(r"^[ \t]*[^\s#!=:>]+->", document.text, re.MULTILINE) or document.said("kind") is not None:
        return False
    return _DISTINCT.search(document.text) is not None or _COMMENTED.search(document.text) is not None


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """Raises UnreadableTopology when no file describes a link."""
    notes = ImportNotes()
    properties = [each for each in documents if each.text.lstrip()[:1] not in ("{", "[")]
    halves = [half for document in properties for half in _halves(document, notes)]
    if not halves:
        raise UnreadableTopology(
            f"{documents[0].file}: filters and mirror topics, but no properties of a link (`link.mode`, "
            "`bootstrap.servers`, …); name the directory that holds them, too"
        )
    for half in halves:
        check_literal_secrets(list(half.config.values()), notes)
        linking_settings.check_link_settings(half.config, notes)
        _check_modes(half, notes)
    for document in documents:
        if document not in properties:
            _add_json(document, halves, notes)
    _name_ends(halves, notes)
    links = _links(halves, notes)
    clusters = _clusters(halves, notes)
    check_imported_clusters(
        clusters, {alias: half.where for half in halves for alias in (half.source, half.target)}, notes
    )
    first = properties[0]
    return ImportedTopology(
        format="cluster-linking",
        name=build_cluster_alias(
            PurePath(first.file).stem if len(properties) == 1 else PurePath(first.file).parent.name
        ),
        file=first.file,
        text=first.text,
        clusters=clusters,
        flows=build_link_flows(links, notes),
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _halves(document: ForeignDocument, notes: ImportNotes) -> Iterator[_LinkHalf]:
    """One for every `link=` of the file's comments, or one for the whole file."""
    lines = re.split(r"\r\n|\n|\r", document.text)
    begins = [number for number, line in enumerate(lines) if _COMMENTED.match(line)]
    if len(begins) < 2:
        begins = [0]
    elif any(line.strip() and not line.lstrip().startswith(("#", "!")) for line in lines[: begins[0]]):
        place = FileSpan(document.file, 1, 1, 1, 1)
        notes.add_problem("SYN003", "settings before the first `# watershed: link=…` belong to no link", place)
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        said = _properties("\n".join(lines[begin:end]), begin, document.file, notes)
        words = _words(lines[begin:end], begin, document.file, notes)
        where = words["link"].key if "link" in words else said[0].key if said else FileSpan(document.file, 1, 1, 1, 1)
        name = words["link"].text if "link" in words else build_cluster_alias(PurePath(document.file).stem)
        half = _LinkHalf(name, where, {each.name: each for each in said}, words)
        mirrored = words.get("mirror")
        if mirrored is not None:
            half.mirrors += [MirrorTopic(each, mirrored.span) for each in mirrored.text.split(",") if each]
        if said or words:
            yield half


def _properties(text: str, before: int, file: str, notes: ImportNotes) -> list[ForeignSetting]:
    """Those of a part of the file, with the places of the file."""

    def moved(span: FileSpan) -> FileSpan:
        return span._replace(line=span.line + before, end_line=span.end_line + before)

    own = ImportNotes()
    said = parse_properties(text, file, own)
    for problem in own.problems:
        labels = tuple(replace(label, span=moved(label.span)) for label in problem.labels)
        notes.add_foreign_problem(replace(problem, labels=labels))
    return [replace(each, span=moved(each.span), key=moved(each.key)) for each in said]


def _words(lines: list[str], before: int, file: str, notes: ImportNotes) -> dict[str, ForeignSetting]:
    found: dict[str, ForeignSetting] = {}
    for number, line in enumerate(lines, before + 1):
        comment = _COMMENT.match(line)
        if comment is None:
            continue
        begin = comment.start(1) + 1
        for match in _WORD.finditer(comment[1]):
            name, text = match.groups()
            key = FileSpan(file, number, begin + match.start(1), number, begin + match.end(1))
            value = FileSpan(file, number, begin + match.start(2), number, begin + match.end(2))
            if name not in _WORDS:
                near = suggest_word(name, _WORDS)
                help_ = f"did you mean `{near}`?" if near else f"known: {', '.join(_WORDS)}"
                notes.add_problem("SYN003", f"`# watershed: {name}=`: an unknown word", key, help_)
            elif name in ("source", "target", "link") and NAME_REGEX.fullmatch(text) is None:
                message = f"`# watershed: {name}=`: expected a name of lower-case letters, digits and `-`"
                notes.add_problem("SYN011", message, value)
            elif name == "mirror" and name in found:
                found[name] = ForeignSetting(name, f"{found[name].text},{text}", found[name].span, found[name].key)
            else:
                found[name] = ForeignSetting(name, text, value, key)
    return found


def _check_modes(half: _LinkHalf, notes: ImportNotes) -> None:
    mode, connection = half.config.get("link.mode"), half.config.get("connection.mode")
    if mode is not None and half.mode not in linking_settings.LINK_MODES:
        notes.add_problem(
            "SYN011", f"`{mode.name}`: expected one of {', '.join(linking_settings.LINK_MODES)}", mode.span
        )
        del half.config["link.mode"]
    if connection is not None and half.connection not in linking_settings.LINK_CONNECTION_MODES:
        notes.add_problem("SYN011", f"`{connection.name}`: expected OUTBOUND or INBOUND", connection.span)
        del half.config["connection.mode"]
    if half.mode == "SOURCE" and half.connection == "INBOUND" and connection is not None:
        message = "a link with `link.mode=SOURCE` connects from the source, so it is OUTBOUND"
        notes.add_problem("SYN009", message, connection.span, "INBOUND belongs into the file of the destination")
    useless = []
    if half.connection == "INBOUND":
        useless = [key for key in half.config if key == "bootstrap.servers" or mm2_settings.is_connection_key(key)]
    elif half.mode == "DESTINATION":
        useless = [key for key in half.config if linking_settings.strip_local_prefix(key) is not None]
    if useless:
        said = half.config[useless[0]]
        how = "an inbound link waits for the other cluster" if half.connection == "INBOUND" else "of such a link"
        message = f"`{said.name}` has no effect: {how}"
        if half.connection != "INBOUND":
            message = f"`{said.name}` has no effect: a destination's link connects to the source only"
        notes.add_problem("SYN003", message, said.key, "leave it out", severity="warning")


def _name_ends(halves: list[_LinkHalf], notes: ImportNotes) -> None:
    """Aliases of both ends. Two halves of one link tell each other's; the same addresses are the same cluster."""
    for half in halves:
        for end in ("source", "target"):
            if end in half.words:
                setattr(half, end, half.words[end].text)
    _name_by_address(halves)
    _pair_up(halves, notes)
    told = {id(one) for one, _ in _partners(halves) if one.mode == "SOURCE"}
    for half in halves:
        for end in ("source", "target"):
            if not getattr(half, end):
                setattr(half, end, f"{build_cluster_alias(half.name)[:70]}-{end}")
            if end not in half.words and id(half) not in told:
                alias = getattr(half, end)
                why = f"the file does not say which cluster it is; rename it, or add a line `# watershed: {end}=NAME`"
                notes.add_not_carried(f"the {end} of link `{half.name}`, called {alias}", why, half.where)


def _name_by_address(halves: list[_LinkHalf]) -> None:
    """The alias of a link's remote end is that of any other link with the same addresses."""
    connected = [
        (half, _address(said)) for half in halves if (said := half.config.get("bootstrap.servers")) is not None
    ]
    by_address: dict[str, str] = {}
    for half, address in connected:
        if getattr(half, half.remote):
            by_address.setdefault(address, getattr(half, half.remote))
    for half, address in connected:
        if not getattr(half, half.remote):
            alias = by_address.setdefault(address, f"{build_cluster_alias(half.name)[:70]}-{half.remote}")
            setattr(half, half.remote, alias)


def _pair_up(halves: list[_LinkHalf], notes: ImportNotes) -> None:
    """The two files of one link, by its name or because no other file could be meant."""
    for one, other in _partners(halves):
        if one.mode == "SOURCE":
            one.source = one.source or other.source
            other.source, other.target = other.source or one.source, other.target or one.target
            shared = build_cluster_alias(other.name)[:70]
            one.source = other.source = other.source or f"{shared}-source"
        else:
            one.target, other.target = one.target or other.source, other.target or one.source
        if one.name != other.name:
            why = "two files that fit together were taken for the two ends of one link"
            notes.add_not_carried(f"links `{one.name}` and `{other.name}`", why, one.where)


def _partners(halves: list[_LinkHalf]) -> Iterator[tuple[_LinkHalf, _LinkHalf]]:
    starting = [each for each in halves if each.mode == "SOURCE"]
    waiting = [each for each in halves if each.mode == "DESTINATION" and each.connection == "INBOUND"]
    both = [each for each in halves if each.mode == "BIDIRECTIONAL"]
    named: dict[str, _LinkHalf] = {}
    for each in waiting:
        named.setdefault(each.name, each)
    for one in starting:
        other = waiting[0] if len(starting) == len(waiting) == 1 else named.get(one.name)
        if other is not None and _may_be_one(one, other):
            yield one, other
    if len(both) == 2:
        if _may_be_one(both[0], both[1]):
            yield both[0], both[1]
        return
    open_halves: dict[str, _LinkHalf] = {}
    for each in both:
        earlier = open_halves.pop(each.name, None)
        if earlier is not None:
            yield earlier, each
        else:
            open_halves[each.name] = each


def _may_be_one(one: _LinkHalf, other: _LinkHalf) -> bool:
    """Whether two halves can be of one link: not when their comments call them differently."""
    return one.name == other.name or not ("link" in one.words and "link" in other.words)


def _links(halves: list[_LinkHalf], notes: ImportNotes) -> list[ClusterLink]:
    """The destination's half decides; a source's half is a link of its own only where the other one is missing."""
    partners = {id(one): other for one, other in _partners(halves) if one.mode == "SOURCE"}
    paired = {id(other) for other in partners.values()}
    both_ways = {half.source for half in halves if half.mode == "BIDIRECTIONAL"}
    out = []
    for half in halves:
        if id(half) in partners:
            continue
        waiting = half.connection == "INBOUND" and half.mode == "DESTINATION"
        if (half.mode == "SOURCE" or waiting) and id(half) not in paired:
            what, other = ("the destination", "source") if waiting else ("the source", "destination")
            why = f"this is the half on {what}; the settings of the half on the {other} are not here"
            notes.add_not_carried(f"the other half of link `{half.name}`", why, half.where)
        bidirectional = half.mode == "BIDIRECTIONAL"
        if bidirectional and half.target not in both_ways:
            why = f"a bidirectional link can also mirror from {half.target} to {half.source}; that half is not here"
            notes.add_not_carried(f"the way back of link `{half.name}`", why, half.where)
        mirrors = tuple(half.mirrors)
        out.append(ClusterLink(half.name, half.source, half.target, half.where, half.config, mirrors, bidirectional))
    return out


def _clusters(halves: list[_LinkHalf], notes: ImportNotes) -> tuple[ImportedCluster, ...]:
    """The first half that says how to connect to a cluster counts."""
    client: dict[str, dict[str, ForeignSetting]] = {}
    ids: dict[str, str] = {}
    for half in halves:
        for end in ("source", "target"):
            alias = getattr(half, end)
            own = client.setdefault(alias, {})
            remote = end == half.remote and half.connection == "OUTBOUND"
            for key, said in half.config.items():
                plain = key if remote and mm2_settings.is_connection_key(key) else None
                if not remote and half.mode != "DESTINATION":
                    plain = linking_settings.strip_local_prefix(key)
                if plain is not None:
                    own.setdefault(plain, said)
            if f"{end}-bootstrap" in half.words:
                own.setdefault("bootstrap.servers", half.words[f"{end}-bootstrap"])
            if f"{end}-id" in half.words:
                ids.setdefault(alias, half.words[f"{end}-id"].text)
    return tuple(
        ImportedCluster(
            alias,
            parse_bootstrap_servers(alias, own.get("bootstrap.servers"), notes),
            ids.get(alias),
            security=build_client_security(alias, own, notes),
        )
        for alias, own in sorted(client.items())
    )


def _add_json(document: ForeignDocument, halves: list[_LinkHalf], notes: ImportNotes) -> None:
    """Filters and mirror topics of files of their own, given to the link that they belong to."""
    entries = _mirror_entries(document)
    called_so = {said.text for each in entries if (said := find_scalar_setting(each, "link_name")) is not None}
    for entry in entries:
        link, name = find_scalar_setting(entry, "link_name"), find_scalar_setting(entry, "mirror_topic_name")
        topic, status = find_scalar_setting(entry, "source_topic_name"), find_scalar_setting(entry, "mirror_status")
        chosen = [half for half in halves if link is not None and half.name == link.text and half.mode != "SOURCE"]
        if not chosen and len(halves) == 1 and len(called_so) < 2 and "link" not in halves[0].words:
            chosen = halves  # a link that is called like its file may have another name
        if topic is None or len(chosen) != 1:
            what = f"mirror topic `{topic.text}`" if topic is not None else "a mirror topic"
            notes.add_not_carried(what, "no file here is its link, by `link_name`", entry.span)
            continue
        called = name.text if name is not None else None
        chosen[0].mirrors.append(
            MirrorTopic(topic.text, entry.span, called, status.text.upper() if status else "ACTIVE")
        )
    found = _filters(document)
    if found is None:
        return
    kind, node = found
    targets = [half for half in halves if half.mode != "SOURCE"]
    if len(targets) != 1:
        notes.add_not_carried(
            f"`{kind}`", "there are several links here, and the file does not say which is meant", node.span
        )
        return
    key = _FILTERS[kind]
    if key in targets[0].config:
        more = targets[0].config[key].key
        notes.add_not_carried(f"`{kind}`", f"line {more.line} of {more.file} says `{key}`, which was taken", node.span)
        return
    targets[0].config[key] = ForeignSetting(kind, document.text.strip(), node.span, node.span)


def _filters(document: ForeignDocument) -> tuple[str, YamlNode] | None:
    for kind in _FILTERS:
        node = find_child_node(document.tree, kind)
        if node is not None and document.tree is not None:
            return kind, document.tree
    return None


def _mirror_entries(document: ForeignDocument) -> list[YamlNode]:
    """Of a bare list, or of the `data` of the REST API's answer."""
    tree = document.tree
    listed = tree if tree is not None and tree.kind == "list" else find_child_node(tree, "data")
    if listed is None or listed.kind != "list":
        return []
    return [each for each in listed.items if find_scalar_setting(each, "source_topic_name") is not None]


def _address(said: ForeignSetting) -> str:
    return ",".join(sorted(each.strip().lower() for each in said.text.split(",")))
