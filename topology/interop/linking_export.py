"""A topology as cluster links: for every flow the properties of one link, created at the flow's target.

What a link cannot say is listed and left out; nothing is written that would copy more, or under other names, than the
flow does. Comments `# watershed: link=…` name links and clusters, which the properties themselves cannot;
`topology.interop.linking_import` reads them back.
"""

from __future__ import annotations

from collections.abc import Sequence

from watershed.topology.copy_bounds import render_instant
from watershed.topology.interop.client_security import build_client_properties
from watershed.topology.interop.export_formats import ExportedTopology
from watershed.topology.interop.import_notes import ImportNotes
from watershed.topology.interop.java_properties import escape_property
from watershed.topology.interop.linking_filters import (
    ALL_ACLS_FILTER,
    EVERY_NAME,
    build_link_filter,
    encode_link_filters,
)
from watershed.topology.interop.linking_settings import MAX_LINK_PREFIX_LETTERS
from watershed.topology.interop.mm2_export_topics import has_common_match
from watershed.topology.model import Flow, Topology
from watershed.topology.plan import PlanCluster
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import INTERNAL_TOPIC_GLOBS, Selector
from watershed.topology.shell_command import render_shell_command

# settings that `_settings` and `_topics` write, or that say what a link does anyway
_SAID = ("topics", "naming", "state", "delivery.start", "sync.configs", "sync.acls", "sync.groups")
_ANYWAY = {
    "partitions.mode": "grow",
    "partitions.mapping": "preserve",
    "delivery.semantics": "exactly_once",
    "sync.quotas.mode": "never",
    "sync.users.mode": "never",
    "sync.schemas.mode": "never",
    "merge.allowed": False,
    "offsets": "mapped",
}
_WHY = {
    "provenance": "a link marks no records; its mirror topics are read-only",
    "merge": "a mirror topic has one source",
    "offsets": "a link always keeps offsets; that is not read back",
    "delivery.isolation": "a link copies transactions as they are, and does not support them",
    "delivery.end": "a link mirrors until it is promoted or deleted",
    "delivery": "a link has no such choice",
    "replication_factor": "say it when mirror topics are created (`kafka-mirrors --replication-factor`)",
    "partitions": "a link keeps partitions as they are, and grows with the source",
    "workers": "the destination's brokers do the work; see `num.cluster.link.fetchers` and the link's quotas",
    "slo": "a link promises nothing; put it into your alerts",
    "sync.quotas": "a link copies no quotas",
    "sync.users": "a link says nothing of users",
    "sync.schemas": "schemas are copied by Schema Linking",
    "verify": "a link compares nothing",
    "expected": "a link has no such setting",
}


def write(topology: Topology) -> ExportedTopology:
    """All links in one text, each beginning with its comment; `render_link_properties` has them apart."""
    notes = ImportNotes()
    links = render_link_properties(topology, notes)
    _left_of_topology(topology, notes)
    head = (
        f"# Cluster links, exported from the topology {topology.name}. What a link cannot do is not in here.\n"
        "# The tools take one link a file: each begins with its line `# watershed: link=`.\n"
    )
    files = tuple((f"{name}.properties", text) for name, text in links)
    return ExportedTopology(
        "cluster-linking", head + "".join("\n" + text for _, text in links), notes.not_carried, files
    )


def render_link_properties(topology: Topology, notes: ImportNotes) -> list[tuple[str, str]]:
    """(flow id, properties) in the order of ids, of the flows that can be links."""
    routes: dict[tuple[str, str], list[Flow]] = {}
    for flow in topology.flows:
        routes.setdefault((flow.source, flow.target), []).append(flow)
    return [
        (flow.id, text)
        for flow in topology.flows
        if _check_flow_is_link(flow, routes.get((flow.target, flow.source), []), topology, notes)
        and (text := _link(flow, topology, notes)) is not None
    ]


def _check_flow_is_link(flow: Flow, opposite: Sequence[Flow], topology: Topology, notes: ImportNotes) -> bool:
    """Says why not."""
    naming, settings = flow.plan.naming, flow.settings
    what, named = f"flow {flow.id}", settings.where("naming")
    if flow.source not in topology.clusters or flow.target not in topology.clusters:
        notes.add_not_carried(what, "one of its clusters is not declared", flow.declared)
    elif naming.map or naming.after:
        notes.add_not_carried(what, "a link renames by a prefix only; the flow is left out", named)
    elif len(naming.before) > MAX_LINK_PREFIX_LETTERS:
        why = (
            f"a link's prefix has at most {MAX_LINK_PREFIX_LETTERS} characters, `{naming.before}` has "
            f"{len(naming.before)}"
        )
        notes.add_not_carried(what, f"{why}; the flow is left out", named)
    elif flow.plan.merge:
        why = "a mirror topic has one source, so flows cannot be merged; the flow is left out"
        notes.add_not_carried(what, why, settings.where("merge"))
    elif (back := _way_back(flow, opposite)) is not None:
        why = f"{back.id} has the same topics, and a mirror topic is read-only; the flow is left out"
        notes.add_not_carried(what, why, flow.declared)
    else:
        return True
    return False


def _way_back(flow: Flow, opposite: Sequence[Flow]) -> Flow | None:
    """A running flow the other way that keeps the names of topics which this one, running too, also takes."""
    for other in opposite:
        plain = not flow.plan.naming.grows and not other.plan.naming.grows
        running = flow.plan.state == other.plan.state == "running"
        sides = frozenset((("", "", flow.plan.topics), ("", "", other.plan.topics)))
        if plain and running and find_shortest_overlap(sides).found:
            return other
    return None


def _link(flow: Flow, topology: Topology, notes: ImportNotes) -> str | None:
    topics = _topics(flow, notes)
    if topics is None:
        return None
    source, target = topology.clusters[flow.source], topology.clusters[flow.target]
    words = [f"link={flow.id}", f"source={flow.source}", f"target={flow.target}"]
    words.append(f"target-bootstrap={','.join(target.bootstrap)}")
    words += [f"{end}-id={one.cluster_id}" for end, one in (("source", source), ("target", target)) if one.cluster_id]
    order = render_shell_command(
        *("kafka-cluster-links", "--bootstrap-server", ",".join(target.bootstrap), "--create", "--link", flow.id),
        *("--config-file", f"{flow.id}.properties"),
        *(("--cluster-id", source.cluster_id) if source.cluster_id else ()),
    )
    lines = [
        f"# watershed: {' '.join(words)}",
        f"# {order}",
        "link.mode=DESTINATION",
        "connection.mode=OUTBOUND",
        f"bootstrap.servers={','.join(source.bootstrap)}",
        *(f"{key}={escape_property(value)}" for key, value in _connection(source, topology, notes).items()),
        *(f"{key}={escape_property(value)}" for key, value in (topics | _settings(flow, notes)).items()),
    ]
    return "\n".join(lines) + "\n"


def _topics(flow: Flow, notes: ImportNotes) -> dict[str, str] | None:
    place = flow.settings.where("topics", "include")
    banned = [each for each in flow.plan.topics.exclude if build_link_filter(each) is None]
    include = []
    for each in flow.plan.topics.include:
        what = f"topics {each} of flow {flow.id}"
        overlapping = next((other for other in banned if _meet(each, other)), None)
        if each.kind == "literal" and not flow.plan.topics.selects(each.text):
            continue
        if build_link_filter(each) is None:
            notes.add_not_carried(what, "a filter knows a name, or how names begin; left out", place)
        elif each.kind == "literal" and each.text.startswith("__"):
            notes.add_not_carried(what, "a link does not mirror Kafka's own topics; left out", place)
        elif overlapping is not None:
            why = f"no filter says the exclude {overlapping}, so too much would be mirrored; left out"
            notes.add_not_carried(what, why, place)
        else:
            include.append(each)
    if not include:
        notes.add_not_carried(f"flow {flow.id}", "nothing of its topics can be said; the flow is left out", place)
        return None
    exclude = [each for each in flow.plan.topics.exclude if each not in banned and _is_needed_exclude(each, include)]
    exclude += _internal(flow, include, notes)
    return {
        "auto.create.mirror.topics.enable": "true",
        "auto.create.mirror.topics.filters": encode_link_filters("topicFilters", include, exclude),
    }


def _internal(flow: Flow, include: list[Selector], notes: ImportNotes) -> list[Selector]:
    """Watershed leaves internal topics out of patterns by itself; a filter has to say so, where it can."""
    literals = [each for each in include if each.kind == "literal"]
    patterns = [each for each in include if each.kind != "literal"]
    out, unsaid = [], []
    for each in (Selector("glob" if "*" in text else "literal", text) for text in INTERNAL_TOPIC_GLOBS):
        if not any(_meet(each, one) for one in patterns):
            continue
        if build_link_filter(each) is not None and not any(each.matches(one.text) for one in literals):
            out.append(each)
        else:
            unsaid.append(each.text)
    if unsaid:
        why = "a link mirrors such topics, where they exist; Watershed does not"
        what = f"internal topics {', '.join(unsaid)} of flow {flow.id}"
        notes.add_not_carried(what, why, flow.settings.where("topics", "include"))
    return out


def _settings(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    out: dict[str, str] = {}
    if flow.plan.naming.before:
        out["cluster.link.prefix"] = flow.plan.naming.before
    if flow.plan.state == "paused":
        out["cluster.link.paused"] = "true"
    start = flow.settings.get("delivery", "start")
    if isinstance(start, str):
        out["mirror.start.offset.spec"] = start
    elif start is not None and start.timestamp_ms is not None:
        out["mirror.start.offset.spec"] = render_instant(start.timestamp_ms)
    elif start is not None:
        why = "a link starts at `earliest`, `latest` or an instant"
        notes.add_not_carried("delivery.start", why, flow.settings.where("delivery", "start"))
    out |= _configs(flow, notes) | _groups(flow, notes) | _acls(flow, notes)
    for path, value in flow.settings.walk():
        inside = any(path == head or path.startswith(f"{head}.") for head in _SAID)
        if inside or value.fields or "[" in path or _ANYWAY.get(path, value) == value.data:
            continue
        section = next((head for head in _WHY if path == head or path.startswith(f"{head}.")), path)
        place = flow.settings.where(*section.split("."))  # said once for all flows that have it from there
        notes.add_not_carried(section, _WHY.get(section, "a link has no such setting"), place)
    return out


def _configs(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    settings = flow.settings
    if flow.plan.sync_configs != "continuous":
        why = "a link keeps configurations equal all the time"
        where = settings.where("sync", "configs", "mode")
        notes.add_not_carried(f"sync.configs.mode: {flow.plan.sync_configs} of flow {flow.id}", why, where)
    for key, why in (("exclude", "a link has a list of keys to include only"), ("set", "a link sets nothing itself")):
        if settings.at("sync", "configs", key) is not None:
            where = settings.where("sync", "configs", key)
            notes.add_not_carried(f"sync.configs.{key} of flow {flow.id}", why, where)
    include = settings.texts("sync", "configs", "include")
    return {"topic.config.sync.include": ",".join(sorted(set(include)))} if include else {}


def _groups(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    settings = flow.settings
    mode = settings.get("sync", "groups", "mode", default="never")
    what, where = f"sync.groups of flow {flow.id}", settings.where("sync", "groups")
    if mode == "never":
        return {}
    if mode == "once":
        notes.add_not_carried(what, "a link synchronises groups all the time or never; written as never", where)
        return {}
    excluded = settings.texts("sync", "groups", "exclude")
    banned = [each for each in excluded if build_link_filter(each) is None]
    include = []
    for each in settings.texts("sync", "groups", "include") or (EVERY_NAME,):
        overlapping = next((other for other in banned if _meet(each, other)), None)
        if build_link_filter(each) is None:
            notes.add_not_carried(f"sync.groups.include {each} of flow {flow.id}", "no filter says it; left out", where)
        elif overlapping is not None:
            why = f"no filter says the exclude {overlapping}, so too much would be synchronised; left out"
            notes.add_not_carried(f"sync.groups.include {each} of flow {flow.id}", why, where)
        else:
            include.append(each)
    if not include:
        notes.add_not_carried(what, "nothing of its groups can be said; written as never", where)
        return {}
    if settings.list("sync", "groups", "streams"):
        why = "a link moves positions of Streams applications without waiting for their state"
        notes.add_not_carried(f"sync.groups.streams of flow {flow.id}", why, where)
    interval = settings.get("sync", "groups", "interval", default=10_000)
    if interval < 1000:
        notes.add_not_carried(f"sync.groups.interval of flow {flow.id}", "a link does it once a second at most", where)
    exclude = [each for each in excluded if each not in banned]
    return {
        "consumer.offset.sync.enable": "true",
        "consumer.offset.sync.ms": str(max(1000, interval)),
        "consumer.offset.group.filters": encode_link_filters("groupFilters", include, exclude),
    }


def _acls(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    settings = flow.settings
    mode = settings.get("sync", "acls", "mode", default="never")
    if mode == "never":
        return {}
    why = ""
    if mode == "once":
        why = "a link copies ACLs all the time or never"
    elif flow.plan.naming.before:
        why = "a link with a prefix copies no ACLs"
    elif settings.get("sync", "acls", "include_write", default="never") != "always":
        why = "a link copies the right to write, too, at once (`include_write: always`)"
    elif settings.list("sync", "acls", "include") or settings.list("sync", "acls", "exclude"):
        why = "a filter on ACLs also needs operations and principals"
    if why:
        where = settings.where("sync", "acls")
        notes.add_not_carried(f"sync.acls of flow {flow.id}", f"{why}; written as never", where)
        return {}
    return {"acl.sync.enable": "true", "acl.filters": ALL_ACLS_FILTER}


def _connection(cluster: PlanCluster, topology: Topology, notes: ImportNotes) -> dict[str, str]:
    """How the link reaches its source; secrets as references, to be put in by whoever creates the link."""
    return build_client_properties(
        cluster,
        topology,
        notes,
        apart="put user and password in for {user} and {password} when the link is created",
        jaas="sasl.jaas.config",
        key_store="a PEM key store is one file: put key and certificate into it",
    )


def _left_of_topology(topology: Topology, notes: ImportNotes) -> None:
    """What has no place in a link, outside of flows."""
    for key in ("owner", "description", "labels"):
        if (value := topology.root.at("metadata", key)) is not None:
            notes.add_not_carried(f"metadata.{key}", "a link has no such thing", value.span)
    sources = {flow.source for flow in topology.flows}
    for alias, value in (topology.root.at("clusters") or topology.root).fields.items():
        for key, each in value.fields.items():
            if key == "security" and alias not in sources:
                why = "how the tools connect to the target is no part of a link (`--command-config`)"
                notes.add_not_carried(f"clusters.{alias}.security", why, each.span)
            elif key not in ("bootstrap", "security", "cluster_id") and alias in topology.clusters:
                notes.add_not_carried(f"clusters.{alias}.{key}", "a link has no such thing", each.span)
    if (migration := topology.root.at("migration")) is not None:
        notes.add_not_carried("migration", "a link moves no applications", migration.span)


def _is_needed_exclude(each: Selector, include: list[Selector]) -> bool:
    return any(_meet(each, one) for one in include)


def _meet(one: Selector, other: Selector) -> bool:
    if one.kind == "literal":
        return other.matches(one.text)
    return one.matches(other.text) if other.kind == "literal" else has_common_match(one.automaton(), other.automaton())
