"""Confluent Replicator's connectors as they are given to Connect: `{"name": …, "config": {…}}`, bare configurations,
arrays, answers of Connect's REST API, Kubernetes resources with `spec.config`, properties of a standalone worker.

Source: Confluent's "Replicator Configuration Reference".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from watershed.topology.errors import BadSelector, UnreadableTopology
from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop import mm2_topic_list, replicator_settings
from watershed.topology.interop.bootstrap_servers import parse_bootstrap_servers
from watershed.topology.interop.client_security import build_client_security, check_literal_secrets
from watershed.topology.interop.import_checks import check_imported_clusters, check_replication_factor
from watershed.topology.interop.import_formats import ForeignDocument, find_child_node
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, parse_java_boolean
from watershed.topology.interop.import_numbers import report_slow_discovery
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedFlow, ImportedTopology
from watershed.topology.interop.java_properties import parse_properties
from watershed.topology.interop.topology_writer import build_cluster_alias
from watershed.topology.interop.yaml_settings import collect_settings, find_scalar_setting, parse_yaml_documents
from watershed.topology.quantities import render_duration
from watershed.topology.selectors import Selector, is_internal_topic
from watershed.topology.yaml_tree import YamlNode

_CLASS = re.compile(r"(?:io\.confluent\.connect\.replicator\.)?Replicator(?:Source)?Connector")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPIC = "${topic}"


@dataclass(frozen=True, slots=True)
class _ReplicatorConnector:
    """`config` by key, as it stands; `where` the line of its class."""

    name: str
    config: dict[str, ForeignSetting]
    where: FileSpan
    running: bool = True
    source: str = ""
    target: str = ""

    @property
    def format(self) -> str:
        said = self.config.get("topic.rename.format")
        return said.text.strip() if said is not None and said.text.strip() else _TOPIC


def recognises(document: ForeignDocument) -> bool:
    """True for connectors or properties of Confluent Replicator."""
    return "ReplicatorSourceConnector" in document.text and any(True for _ in _connectors(document, ImportNotes()))


def read(documents: tuple[ForeignDocument, ...]) -> ImportedTopology:
    """Raises UnreadableTopology when the files hold no connector of Replicator."""
    notes = ImportNotes()
    found = [each for document in documents for each in _connectors(document, notes)]
    if not found:
        raise UnreadableTopology(f"{documents[0].file}: no connector of Replicator (`connector.class`)")
    for each in found:
        check_literal_secrets(list(each.config.values()), notes)
        replicator_settings.check_replicator_settings(each.config, notes)
    connectors = _named(found, notes)
    clusters = _clusters(connectors, notes)
    by_alias = {each.alias: each for each in clusters}
    places = {alias: each.where for each in reversed(connectors) for alias in (each.source, each.target)}
    check_imported_clusters(clusters, places, notes)
    for each in connectors:
        check_replication_factor(each.config.get("dest.topic.replication.factor"), by_alias[each.target], notes)
    flows = _flows(connectors, notes)
    _check(connectors, notes)
    first = documents[0]
    return ImportedTopology(
        format="replicator",
        name=build_cluster_alias(connectors[0].name if len(connectors) == 1 else PurePath(first.file).stem),
        file=first.file,
        text=first.text,
        clusters=clusters,
        flows=flows,
        not_carried=notes.not_carried,
        problems=notes.problems,
    )


def _connectors(document: ForeignDocument, notes: ImportNotes) -> Iterator[_ReplicatorConnector]:
    if document.text.lstrip()[:1] not in ("{", "[") and document.said("kind") is None:
        said = {each.name: each for each in parse_properties(document.text, document.file, notes)}
        if "connector.class" in said and _CLASS.fullmatch(said["connector.class"].text.strip()):
            name = said["name"].text if "name" in said else PurePath(document.file).stem
            yield _ReplicatorConnector(name, said, said["connector.class"].key)
        return
    todo = list(parse_yaml_documents(document, notes))
    while todo:
        here = todo.pop(0)
        connector = _connector(here, document, notes) if here.kind == "map" else None
        if connector is not None:
            yield connector
        else:
            todo = [*here.items, *(value for _, value in here.entries if value.kind != "scalar"), *todo]


def _connector(node: YamlNode, document: ForeignDocument, notes: ImportNotes) -> _ReplicatorConnector | None:
    """A mapping that holds a configuration itself, in `config`, or in `spec` with `class`."""
    spec = find_child_node(node, "spec")
    inner = find_child_node(spec if spec is not None else node, "config") or find_child_node(spec, "configs")
    settings = inner if inner is not None and inner.kind == "map" else node
    named = find_scalar_setting(spec, "class") or find_scalar_setting(settings, "connector.class")
    if named is None or _CLASS.fullmatch(named.text.strip()) is None:
        return None
    config = collect_settings(settings, "", notes)
    for key, path in (("tasks.max", "tasksMax"), ("tasks.max", "taskMax")):
        if (tasks := find_scalar_setting(spec, path)) is not None:
            config[key] = tasks
    state = (
        find_scalar_setting(spec, "state")
        or find_scalar_setting(node, "initial_state")
        or find_scalar_setting(node, "target_state")
    )
    running = state is None or state.text.lower() not in ("paused", "stopped")
    said = (
        find_scalar_setting(node, "name")
        or find_scalar_setting(find_child_node(node, "metadata"), "name")
        or config.get("name")
    )
    return _ReplicatorConnector(
        said.text if said is not None else PurePath(document.file).stem, config, named.key, running
    )


def _named(found: list[_ReplicatorConnector], notes: ImportNotes) -> list[_ReplicatorConnector]:
    """The same addresses are the same cluster; its name is a placeholder, for no connector says one."""
    by_address: dict[str, str] = {}
    out = []
    for each in found:
        ends = []
        for end, keys in (("source", _SOURCE), ("target", _TARGET)):
            said = next((each.config[key] for key in keys if key in each.config), None)
            fresh = f"{build_cluster_alias(each.name)}-{end}"
            address = "" if said is None else ",".join(sorted(one.strip().lower() for one in said.text.split(",")))
            alias = by_address.setdefault(address, fresh) if address else fresh
            if alias == fresh:
                why = "a connector does not name its clusters; rename it where it stands"
                notes.add_not_carried(
                    f"the {end} of `{each.name}`, called {alias}", why, said.key if said else each.where
                )
            ends.append(alias)
        out.append(_ReplicatorConnector(each.name, each.config, each.where, each.running, *ends))
    return out


_SOURCE = ("src.kafka.bootstrap.servers",)
_TARGET = ("dest.kafka.bootstrap.servers", "producer.override.bootstrap.servers")


def _clusters(connectors: list[_ReplicatorConnector], notes: ImportNotes) -> tuple[ImportedCluster, ...]:
    """The first connector that says how to connect to a cluster counts."""
    client: dict[str, dict[str, ForeignSetting]] = {}
    for each in connectors:
        for alias in (each.source, each.target):
            client.setdefault(alias, {})
        for key, said in sorted(each.config.items()):
            if (found := replicator_settings.split_connection_key(key)) is not None:
                side, plain = found
                client[each.source if side == "source" else each.target].setdefault(plain, said)
    return tuple(
        ImportedCluster(
            alias,
            parse_bootstrap_servers(alias, own.get("bootstrap.servers"), notes),
            security=build_client_security(alias, own, notes),
        )
        for alias, own in sorted(client.items())
    )


def _flows(connectors: list[_ReplicatorConnector], notes: ImportNotes) -> tuple[ImportedFlow, ...]:
    out: dict[str, ImportedFlow] = {}
    for each in connectors:
        if each.source == each.target:
            message = f"`{each.name}` copies a cluster to itself"
            notes.add_problem(
                "CLU107", message, each.where, "a flow needs two clusters; rename topics at their producers"
            )
            notes.add_not_carried(f"connector `{each.name}`", "source and destination are one cluster", each.where)
            continue
        plain = f"{each.source}-to-{each.target}" not in out
        flow = _flow(each, None if plain else build_cluster_alias(each.name), notes)
        if flow.id in out:
            notes.add_problem("GRF214", f"two connectors are called `{each.name}`", each.where, "keep one of them")
            continue
        out[flow.id] = flow
    return tuple(out.values())


def _flow(connector: _ReplicatorConnector, suffix: str | None, notes: ImportNotes) -> ImportedFlow:
    include, exclude = _selection(connector, notes)
    settings: dict[str, Any] = _naming(connector, include, notes)
    if not connector.running:
        settings["state"] = "paused"
    if parse_java_boolean(connector.config.get("provenance.header.enable"), False):
        settings["provenance"] = {"guard": "producer_id"}
        said = connector.config["provenance.header.enable"]
        why = "loops are stopped by the producer id of a batch, without a header (`provenance.header` adds one)"
        notes.add_not_carried(f"`{said.name}`", why, said.span)
        _check_header(connector, notes)
    settings |= _delivery(connector, notes) | _topic_settings(connector, notes)
    settings["sync"] = {"configs": {"mode": _configs(connector, notes)}, "groups": _groups(connector, notes)}
    workers: dict[str, Any] = {}
    if (count := _number(connector, "tasks.max", 1, 1000, notes)) is not None:
        workers["count"] = count
    if (poll := _number(connector, "topic.poll.interval.ms", 0, 10**12, notes)) is not None:
        workers["discovery"] = render_duration(max(1, poll))
        said = connector.config["topic.poll.interval.ms"]
        report_slow_discovery(said, poll // 1000, "milliseconds", "write milliseconds, such as 180000", (), notes)
    settings |= {"workers": workers} if workers else {}
    if any(each.kind == "literal" and is_internal_topic(each.text) for each in include):
        settings["topics"] = {"allow_internal": True}
    return ImportedFlow(connector.source, connector.target, include, exclude, suffix, settings)


def _selection(
    connector: _ReplicatorConnector, notes: ImportNotes
) -> tuple[tuple[Selector, ...], tuple[Selector, ...]]:
    config = connector.config
    listed, banned = _names(config.get("topic.whitelist"), notes), _names(config.get("topic.blacklist"), notes)
    include, exclude = set(listed), set(banned)
    if (said := config.get("topic.regex")) is not None and said.text.strip():
        one, other = _regex(said, notes)
        include |= {one} if one is not None else set()
        exclude |= {other} if other is not None else set()
    for each in sorted(set(listed) & set(banned)):
        place = config["topic.whitelist"]
        message = f"`{each.text}` is in `topic.blacklist`, too, which wins: it is not copied"
        more = (Label(config["topic.blacklist"].span, "here"),)
        notes.add_problem("GRF216", message, place.span, "take it out of one of the lists", more=more)
        include.discard(each)
    for each in sorted(include):
        if each.text in ("__consumer_offsets", "__transaction_state", "__consumer_timestamps"):
            place = config["topic.whitelist"]
            notes.add_problem("TPC401", f"Replicator never copies `{each.text}`", place.span, "leave it out")
            include.discard(each)
        elif each.text == _schemas(config):
            why = "schemas are carried over by `sync.schemas`, between the registries; the topic itself is not copied"
            notes.add_not_carried(f"topic `{each.text}`", why, config["topic.whitelist"].span)
            include.discard(each)
    if not include:
        message = f"`{connector.name}` selects no topic: neither `topic.whitelist` nor `topic.regex` names one"
        if not any(key in config and config[key].text.strip() for key in ("topic.whitelist", "topic.regex")):
            notes.add_problem("SYN012", message, connector.where, "name topics in `topic.whitelist`")
        why = "none that could be carried over; fill in `topics`"
        notes.add_not_carried(f"topics of `{connector.name}`", why, connector.where)
    return tuple(sorted(include)), tuple(sorted(exclude))


def _names(said: ForeignSetting | None, notes: ImportNotes) -> list[Selector]:
    out = []
    for text in (each.strip() for each in (said.text.split(",") if said is not None else ())):
        if _NAME.fullmatch(text):
            out.append(Selector("literal", text))
        elif text and said is not None:
            why = "a reference to somewhere else" if "${" in text else "no topic's name; the lists take no patterns"
            notes.add_not_carried(f"`{said.name}`: {text}", why, said.span)
            if "${" not in text:
                notes.add_problem(
                    "NAM302", f"`{said.name}`: `{text}` is {why}", said.span, "patterns go to `topic.regex`"
                )
    return out


def _regex(said: ForeignSetting, notes: ImportNotes) -> tuple[Selector | None, Selector | None]:
    """The selector, and what a negative look-ahead excludes. Everything is one regex: a comma is a part of it."""
    text = said.text.strip()
    if "," in text:
        selector = Selector("regex", text)
        try:
            selector.automaton()
        except BadSelector as error:
            notes.add_not_carried(f"`{said.name}`", str(error).partition(": ")[2] or str(error), said.span)
            return None, None
        return selector, None
    [item] = mm2_topic_list.parse_topic_list(text)
    if item.selector is None:
        notes.add_not_carried(f"`{said.name}`: {text}", item.why, said.span)
        return None, None
    if item.selector.automaton().is_empty():
        notes.add_not_carried(f"`{said.name}`: {text}", "no topic can match it", said.span)
        return None, None
    if item.selector == Selector("glob", "*"):
        message = f"`{said.name}` takes every topic of the source, also those of other teams and tests"
        notes.add_problem("NAM307", message, said.span, "name what belongs together, as `team-a\\..*`")
    elif item.trap:
        what = "; imported as the exact name" if item.trap == "loose dots" else ""
        message = f"`{said.name}`: a dot in `{text}` matches any character, not only a dot"
        notes.add_problem("NAM306", message, said.span, f"escape it: `\\.`{what}")
    return item.selector, item.excluded


def _naming(connector: _ReplicatorConnector, include: tuple[Selector, ...], notes: ImportNotes) -> dict[str, Any]:
    text = connector.format
    said = connector.config.get("topic.rename.format")
    if text == _TOPIC or said is None:
        return {"naming": {"policy": "identity"}}
    around = text.replace(_TOPIC, "", 1)
    if text.count(_TOPIC) == 1 and re.fullmatch(r"[a-zA-Z0-9._-]+", around):
        return {"naming": {"policy": "template", "template": text.replace(_TOPIC, "{topic}")}}
    if text.count(_TOPIC) == 1 or "${" in text:
        message = f"`{said.name}`: no topic can have such a name"
        notes.add_problem("NAM302", message, said.span, "letters, digits, `.`, `_`, `-`")
        notes.add_not_carried(f"`{said.name}`", "it makes no legal names; the flow keeps the names", said.span)
    elif len(include) == 1 and include[0].kind == "literal" and _NAME.fullmatch(text):
        return {"naming": {"policy": "map", "map": {include[0].text: text}}}
    elif not include:
        notes.add_not_carried(f"`{said.name}`", "a name for no topic", said.span)
    else:
        message = f"`{said.name}` gives all topics one name, `{text}`"
        notes.add_problem("NAM304", message, said.span, f"put `{_TOPIC}` into it, or copy one topic a connector")
        if re.fullmatch(r"[a-zA-Z0-9._-]+", text):  # lint refuses it, too (NAM305)
            return {"naming": {"policy": "template", "template": text}}
        notes.add_not_carried(f"`{said.name}`", "several topics would become one; the flow keeps the names", said.span)
    return {"naming": {"policy": "identity"}}


def _delivery(connector: _ReplicatorConnector, notes: ImportNotes) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, name, words in (
        ("src.consumer.auto.offset.reset", "start", ("earliest", "latest")),
        ("src.consumer.isolation.level", "isolation", ("read_committed", "read_uncommitted")),
    ):
        said = connector.config.get(key)
        if said is not None and said.text.strip().lower() in words:
            out[name] = said.text.strip().lower()
        elif said is not None:
            notes.add_not_carried(f"`{said.name}`", f"`delivery.{name}` is {' or '.join(words)}", said.span)
    if replicator_settings.has_start_of_group(connector.config):
        group = connector.config.get("src.consumer.group.id")  # Replicator's default is its own name
        out["start"] = {"group": connector.name if group is None else group.text.strip()}
    if out.get("start") == "latest" and "topic.regex" in connector.config:
        place = connector.config["src.consumer.auto.offset.reset"]
        message = "what is written to a new topic before it is found is never copied (`latest` with `topic.regex`)"
        notes.add_problem("TPC417", message, place.span, "start at `earliest`")
    return {"delivery": out} if out else {}


def _topic_settings(connector: _ReplicatorConnector, notes: ImportNotes) -> dict[str, Any]:
    out: dict[str, Any] = {}
    replicas = _number(connector, "dest.topic.replication.factor", 0, 32, notes)
    if replicas:
        out["replication_factor"] = replicas
        if replicas < 3:
            place = connector.config["dest.topic.replication.factor"]
            message = f"topics are created at the target with {replicas} {'replica' if replicas == 1 else 'replicas'}"
            notes.add_problem("TPC405", message, place.span, "3 on a cluster of three or more brokers")
    if not parse_java_boolean(connector.config.get("topic.preserve.partitions"), True):
        out["partitions"] = {"mode": "fixed", "mapping": "key"}
    stamps = connector.config.get("topic.timestamp.type")
    if stamps is not None and stamps.text.strip() == "LogAppendTime":
        message = f"`{stamps.name}`: records get the time at which they were copied"
        notes.add_problem("TPC415", message, stamps.span, "use CreateTime")
        notes.add_not_carried(f"`{stamps.name}`", "records keep their time; set it in `sync.configs.set`", stamps.span)
    return out


def _configs(connector: _ReplicatorConnector, notes: ImportNotes) -> str:
    create = connector.config.get("topic.auto.create")
    if parse_java_boolean(connector.config.get("topic.config.sync"), True):
        return "continuous"
    if create is not None and not parse_java_boolean(create, True):
        notes.add_not_carried(f"`{create.name}`", "Watershed creates the topics that a flow needs", create.span)
        return "never"
    return "once"


def _groups(connector: _ReplicatorConnector, notes: ImportNotes) -> dict[str, Any]:
    """Never: no file names the groups. Source: Confluent's "Understanding Consumer Offset Translation"."""
    tasks = connector.config.get("offset.translator.tasks.max")
    if tasks is not None and tasks.text.strip() == "0":
        return {"mode": "never"}
    why = (
        "Replicator moves only groups whose Java consumers have its timestamp interceptor, and no file names them: "
        "write `sync.groups: {mode: continuous, include: [...]}` with their names"
    )
    notes.add_not_carried(
        f"offset translation of `{connector.name}`", why, tasks.span if tasks is not None else connector.where
    )
    return {"mode": "never"}


def _check_header(connector: _ReplicatorConnector, notes: ImportNotes) -> None:
    said = connector.config.get("header.converter")
    if said is not None and not said.text.strip().endswith("ByteArrayConverter"):
        message = f"`{said.name}` rewrites headers, so the provenance header does not arrive as it left"
        help_ = "use io.confluent.connect.replicator.util.ByteArrayConverter"
        notes.add_problem("GRF208", message, said.span, help_)


def _check(connectors: list[_ReplicatorConnector], notes: ImportNotes) -> None:
    """Two directions without provenance headers and without a rename: records go in a circle."""
    routes: dict[tuple[str, str], _ReplicatorConnector] = {}
    for other in connectors:
        one = routes.get((other.target, other.source))
        if other.running and other.format == _TOPIC:
            routes.setdefault((other.source, other.target), other)
        if one is None or not other.running or one.source == one.target:
            continue
        guarded = [parse_java_boolean(each.config.get("provenance.header.enable"), False) for each in (one, other)]
        if one.format == other.format == _TOPIC and not all(guarded):
            notes.add_problem(
                "GRF201",
                f"`{one.name}` and `{other.name}` copy to each other and keep the topics' names, without provenance "
                "headers on both: a record that both select goes in a circle",
                one.where,
                "set `provenance.header.enable` in both; the imported flows stop the loop by producer id",
                more=(Label(other.where, "the way back"),),
            )


def _schemas(config: dict[str, ForeignSetting]) -> str:
    said = config.get("schema.registry.topic")
    return said.text.strip() if said is not None and said.text.strip() else "_schemas"


def _number(connector: _ReplicatorConnector, key: str, low: int, high: int, notes: ImportNotes) -> int | None:
    said = connector.config.get(key)
    if said is None:
        return None
    text = said.text.strip()
    if re.fullmatch(r"[0-9]{1,15}", text) is None or not low <= int(text) <= high:
        notes.add_problem("SYN011", f"`{said.name}`: expected a whole number from {low} to {high}", said.span)
        return None
    return int(text)
