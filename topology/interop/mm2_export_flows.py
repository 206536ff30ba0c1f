"""A topology's flows as pairs of MirrorMaker 2: their foreign names, which of them MirrorMaker can do, and their
settings. What it cannot do goes to the notes; a flow whose names or loops it cannot do is left out or switched off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from watershed.topology.interop.import_notes import ImportNotes
from watershed.topology.interop.mm2_compatibility import build_compatibility_settings
from watershed.topology.interop.mm2_export_topics import build_export_topic_lists
from watershed.topology.interop.mm2_pair import DEFAULT_REPLICATION_POLICY, IDENTITY_REPLICATION_POLICY
from watershed.topology.interop.mm2_topic_list import encode_topic_list
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.resolver import DEFAULT_EXCLUDED_CONFIGS
from watershed.topology.selection_overlap import find_shortest_overlap

_PACKAGE = "org.apache.kafka.connect.mirror."
_BEFORE = re.compile(r"(?P<name>[a-zA-Z0-9._-]*?[a-zA-Z0-9])(?P<separator>[._-]{1,3})")
# settings of a flow that MirrorMaker has; all others are listed
_CARRIED = {
    "topics",
    "naming",
    "state",
    "replication_factor",
    "delivery.start",
    "delivery.isolation",
    "workers.count",
    "workers.discovery",
    "sync.configs.mode",
    "sync.configs.exclude",
    "sync.acls.mode",
    "sync.groups",
    *(f"compatibility.mirrormaker.{each}" for each in ("heartbeats", "checkpoints", "offset_syncs", "separator")),
    *(f"compatibility.mirrormaker.{each}" for each in ("heartbeat_interval", "checkpoint_interval", "offset_syncs_at")),
}
_WHY = {
    "provenance.guard": "MirrorMaker stops loops by names only",
    "provenance.header": "MirrorMaker marks no records",
    "provenance.forward": "MirrorMaker forwards whatever its topics select",
    "delivery.end": "MirrorMaker copies until somebody stops it",
    "merge": "MirrorMaker does not know that two flows share a topic",
    "offsets": "MirrorMaker translates offsets by samples",
    "workers.near": "MirrorMaker runs where it is started; name a rack to read from a replica there",
    "workers.quota": "set quotas for MirrorMaker's clients at the brokers",
    "slo": "MirrorMaker promises nothing; put it into your alerts",
    "compatibility.mirrormaker.aliases": "MirrorMaker has one name for a cluster, in all topics",
    "compatibility.source_group": "MirrorMaker commits nothing at the source",
    "sync.quotas": "MirrorMaker copies no quotas",
    "sync.users": "MirrorMaker says nothing of users",
    "sync.schemas": "MirrorMaker copies no schemas",
    "sync.configs.include": "MirrorMaker has a list of excludes only",
    "sync.configs.set": "MirrorMaker sets no configuration of its own",
    "sync.acls.include_write": "MirrorMaker never copies the right to write",
}


@dataclass(slots=True)
class MirrorExportFlow:
    """`source` and `target` are foreign names. `config` are connector settings, those of the source's consumer as
    `consumer.…`. exactly_once is a setting of the target's worker."""

    flow: Flow
    source: str
    target: str
    enabled: bool
    config: dict[str, str] = field(default_factory=dict)
    exactly_once: bool = False


def choose_mirror_aliases(topology: Topology) -> dict[str, str]:
    """Foreign names by alias: the alias, or the word that the flows of a cluster put before its topics."""
    out = {}
    for alias in topology.clusters:
        said = {name for flow in topology.flows if flow.source == alias and (name := _prefix(flow)[0]) is not None}
        fits = sorted(name for name in said if build_cluster_alias(name) == alias)
        out[alias] = alias if alias in fits or not fits else fits[0]
    return out


def build_export_flows(topology: Topology, names: dict[str, str], notes: ImportNotes) -> list[MirrorExportFlow]:
    """In the order of the flows' ids."""
    found: list[MirrorExportFlow] = []
    loops = _looping(topology.flows)
    for flow in topology.flows:
        where = flow.declared
        if any((one.flow.source, one.flow.target) == (flow.source, flow.target) for one in found):
            notes.add_not_carried(f"flow {flow.id}", "MirrorMaker has one flow from a cluster to another", where)
            continue
        if flow.source not in names or flow.target not in names:
            notes.add_not_carried(f"flow {flow.id}", "one of its clusters is not declared", where)
            continue
        naming = _naming(flow, names[flow.source])
        if naming is None:
            at = flow.settings.at("naming")
            why = "MirrorMaker puts the source's alias before a name, or keeps the name; the flow is left out"
            notes.add_not_carried(f"naming of flow {flow.id}", why, at.span if at is not None else where)
            continue
        topics = build_export_topic_lists(
            flow, [names[each] for each in topology.clusters], names[flow.target], naming, notes
        )
        if topics is None:
            continue
        if flow.id != f"{flow.source}-to-{flow.target}":
            notes.add_not_carried(f"suffix of flow {flow.id}", "MirrorMaker names a flow by its clusters", where)
        enabled = flow.plan.state == "running" and flow.id not in loops
        if flow.id in loops and flow.plan.state == "running":
            why = (
                f"MirrorMaker cannot stop the loop of {', '.join(sorted(loops[flow.id]))}; it is written as not enabled"
            )
            notes.add_not_carried(f"state of flow {flow.id}", why, where)
        config = naming | topics | _settings(flow, notes)
        found.append(MirrorExportFlow(flow, names[flow.source], names[flow.target], enabled, config))
    _exactly_once(found, notes)
    return found


def note_unexported_sections(topology: Topology, notes: ImportNotes) -> None:
    """What MirrorMaker has no word for, outside the flows."""
    for key in ("owner", "description", "labels"):
        if (value := topology.root.at("metadata", key)) is not None:
            notes.add_not_carried(f"metadata.{key}", "MirrorMaker has no such thing", value.span)
    for alias, value in (topology.root.at("clusters") or topology.root).fields.items():
        for key, each in value.fields.items():
            if key not in ("bootstrap", "security") and alias in topology.clusters:
                notes.add_not_carried(f"clusters.{alias}.{key}", "MirrorMaker has no such thing", each.span)
    if (value := topology.root.at("migration")) is not None:
        notes.add_not_carried("migration", "MirrorMaker moves no applications", value.span)


def _prefix(flow: Flow) -> tuple[str | None, str]:
    """(name, separator) that the default policy needs; (None, "") when there is no such name."""
    naming = flow.plan.naming
    if naming.policy not in ("prefix", "template") or naming.after or not naming.before:
        return None, ""
    own = naming.before.removeprefix(flow.source)
    if own != naming.before and re.fullmatch(r"[._-]{1,3}", own):
        return flow.source, own
    match = _BEFORE.fullmatch(naming.before)
    return (match["name"], match["separator"]) if match is not None else (None, "")


def _naming(flow: Flow, name: str) -> dict[str, str] | None:
    naming = flow.plan.naming
    if not naming.grows and not naming.map:
        return {"replication.policy.class": _PACKAGE + IDENTITY_REPLICATION_POLICY}
    before, separator = _prefix(flow)
    if before != name:
        return None
    return {
        "replication.policy.class": _PACKAGE + DEFAULT_REPLICATION_POLICY,
        "replication.policy.separator": separator,
    }


def _build_consumer_settings(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    """Of the consumer that reads the source."""
    settings, out = flow.settings, dict[str, str]()
    if isinstance(start := settings.get("delivery", "start"), str):
        out["consumer.auto.offset.reset"] = start
    elif start is not None:
        why = "MirrorMaker starts `earliest` or `latest`; set the connector's offsets before it runs (KIP-875)"
        notes.add_not_carried("delivery.start", why, settings.where("delivery", "start"))
    if (isolation := settings.get("delivery", "isolation")) is not None:
        out["consumer.isolation.level"] = isolation
    if flow.plan.source_rack is not None:
        out["consumer.client.rack"] = flow.plan.source_rack
    return out


def _settings(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    settings, plan = flow.settings, flow.plan
    out: dict[str, str] = {"replication.factor": str(plan.replication_factor or -1)}
    if (count := settings.get("workers", "count")) is not None:
        out["tasks.max"] = str(count)
    if (discovery := settings.get("workers", "discovery")) is not None:
        out["refresh.topics.interval.seconds"] = _seconds(flow, "workers.discovery", discovery, notes)
    out |= _build_consumer_settings(flow, notes)
    out |= _sync(flow, notes) | dict(build_compatibility_settings(flow))
    for path, value in _said(settings):
        if path == "delivery.semantics" and value.data in ("exactly_once", "at_least_once"):
            continue
        carried = _CARRIED if plan.source_rack is None else _CARRIED | {"workers.near"}
        if any(path == head or path.startswith(f"{head}.") for head in carried):
            continue
        section = next((head for head in _WHY if path == head or path.startswith(f"{head}.")), path)
        place = settings.where(*section.split("."))  # said once for all flows that have it from one place
        notes.add_not_carried(section, _WHY.get(section, "MirrorMaker has no such setting"), place)
    return out


def _sync(flow: Flow, notes: ImportNotes) -> dict[str, str]:
    settings, plan = flow.settings, flow.plan
    out = {"sync.topic.configs.enabled": "true" if plan.sync_configs == "continuous" else "false"}
    if plan.sync_configs == "never":
        why = "MirrorMaker creates topics with the configuration of the source"
        notes.add_not_carried(f"sync.configs.mode of flow {flow.id}", why, settings.where("sync", "configs", "mode"))
    if plan.sync_configs_exclude != DEFAULT_EXCLUDED_CONFIGS:
        out["config.properties.exclude"] = ",".join(key.replace(".", r"\.") for key in plan.sync_configs_exclude)
    acls = settings.get("sync", "acls", "mode", default="never")
    out["sync.topic.acls.enabled"] = "true" if acls == "continuous" else "false"
    groups = settings.get("sync", "groups", "mode", default="never")
    out["sync.group.offsets.enabled"] = "true" if groups == "continuous" else "false"
    for section, mode in (("acls", acls), ("groups", groups)):
        if mode == "once":
            why = "MirrorMaker does it continuously or never; written as never"
            notes.add_not_carried(
                f"sync.{section}.mode of flow {flow.id}", why, settings.where("sync", section, "mode")
            )
    if groups == "continuous":
        interval = settings.get("sync", "groups", "interval", default=60_000)
        out["sync.group.offsets.interval.seconds"] = _seconds(flow, "sync.groups.interval", interval, notes)
        if settings.list("sync", "groups", "streams"):
            why = "MirrorMaker moves positions of Streams applications without waiting for their state"
            place = settings.where("sync", "groups", "streams")
            notes.add_not_carried(f"sync.groups.streams of flow {flow.id}", why, place)
        for key, name in (("include", "groups"), ("exclude", "groups.exclude")):
            text, lost = encode_topic_list(settings.texts("sync", "groups", key))
            out[name] = text or (".*" if key == "include" else "")
            for each in lost:
                place = settings.where("sync", "groups", key)
                notes.add_not_carried(
                    f"sync.groups.{key} {each} of flow {flow.id}", "no Java regex without a comma", place
                )
    return out


def _exactly_once(found: Sequence[MirrorExportFlow], notes: ImportNotes) -> None:
    """A matter of the target's worker: all flows into a cluster, or none."""
    for each in found:
        each.exactly_once = each.flow.settings.get("delivery", "semantics") == "exactly_once"
    for each in found:
        others = [one.flow.id for one in found if one.target == each.target and not one.exactly_once]
        if each.exactly_once and others:
            why = f"MirrorMaker does it for all flows into a cluster, and {', '.join(others)} did not ask for it"
            place = each.flow.settings.where("delivery", "semantics")
            notes.add_not_carried(f"delivery.semantics of flow {each.flow.id}", why, place)
    mixed = {one.target for one in found if not one.exactly_once}
    for each in found:
        each.exactly_once = each.exactly_once and each.target not in mixed
        if each.exactly_once:
            each.config["consumer.isolation.level"] = "read_committed"


def _looping(flows: Sequence[Flow]) -> dict[str, set[str]]:
    """Running flows that keep names and lie on a loop through flows with topics in common, and that loop's flows."""
    running = [flow for flow in flows if flow.plan.state == "running" and not flow.plan.naming.grows]
    out: dict[str, set[str]] = {}
    for flow in running:
        shared = [one for one in running if _has_common_topic(flow, one)]
        reached: dict[str, list[str]] = {flow.target: []}
        todo = [flow.target]
        for here in todo:
            for one in shared:
                if one.source == here and one.target not in reached:
                    reached[one.target] = [*reached[here], one.id]
                    todo.append(one.target)
        if flow.source in reached:
            out[flow.id] = {flow.id, *reached[flow.source]}
    return out


def _has_common_topic(one: Flow, other: Flow) -> bool:
    return find_shortest_overlap(frozenset((("", "", one.plan.topics), ("", "", other.plan.topics)))).found


def _seconds(flow: Flow, path: str, milliseconds: int, notes: ImportNotes) -> str:
    seconds = max(1, -(-milliseconds // 1000))
    if seconds * 1000 != milliseconds:
        place = flow.settings.where(*path.split("."))
        notes.add_not_carried(f"{path} of flow {flow.id}", f"MirrorMaker counts seconds; written as {seconds} s", place)
    return str(seconds)


def _said(value: CheckedValue, path: str = "") -> Iterator[tuple[str, CheckedValue]]:
    """Every value that is no mapping, with its dotted path."""
    for name, each in value.fields.items():
        below = f"{path}.{name}" if path else name
        if each.fields and below not in ("sync.configs.set", "naming"):
            yield from _said(each, below)
        else:
            yield below, each
