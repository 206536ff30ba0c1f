"""One cluster link in one direction as a flow. Properties and Terraform differ in where a setting stands; what it means
is here.

Source: Confluent's "Manage Mirror Topics for Cluster Linking" and "Configuration options".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from watershed.topology.copy_bounds import parse_instant, render_instant
from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop import linking_settings
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.imported_topology import ImportedFlow
from watershed.topology.interop.linking_filters import (
    EVERY_NAME,
    LinkFilters,
    has_filter_for_all_acls,
    parse_link_filters,
)
from watershed.topology.quantities import render_duration
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import INTERNAL_TOPIC_GLOBS, Selector, TopicSelection, is_internal_topic

_MAX_PAIRS = 50  # of links on one route that are compared with one on the way back
_ENDED = ("STOPPED", "PROMOTED", "FAILED_OVER", "PENDING_STOPPED")
_TOOL_GROUPS = tuple(Selector("glob", text) for text in ("console-consumer-*", "connect-*"))
_CONFIG_KEY = re.compile(r"[a-z][a-z0-9.]*")


@dataclass(frozen=True, slots=True)
class MirrorTopic:
    """A mirror topic that is named on its own. `name` is what it is called at the target, None when not said."""

    topic: str
    span: FileSpan
    name: str | None = None
    status: str = "ACTIVE"


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """source and target are aliases; `config` has the settings of the link on the target's side, by plain key."""

    name: str
    source: str
    target: str
    where: FileSpan
    config: dict[str, ForeignSetting]
    mirrors: tuple[MirrorTopic, ...] = ()
    bidirectional: bool = False

    @property
    def id(self) -> str:
        """The id of the flow that the link becomes."""
        return f"{self.source}-to-{self.target}"


def build_link_flows(links: Iterable[ClusterLink], notes: ImportNotes) -> tuple[ImportedFlow, ...]:
    """A flow for every link, with a suffix where the route alone does not name it. Never raises."""
    ordered = list(links)
    _check(ordered, notes)
    found: dict[str, ImportedFlow] = {}
    for link in ordered:
        if link.source == link.target:
            message = f"the link `{link.name}` copies cluster `{link.source}` to itself"
            notes.add_problem("CLU107", message, link.where, "name the two clusters apart", ids=(link.source,))
            continue
        flow = _build_link_flow(link, notes)
        if flow.id in found:
            notes.add_problem(
                "GRF214", f"two links of one name, `{link.name}`, run {link.id}", link.where, "keep one of them"
            )
            continue
        found[flow.id] = flow
    return tuple(found.values())


def _build_link_flow(link: ClusterLink, notes: ImportNotes) -> ImportedFlow:
    settings: dict[str, Any] = _naming(link, notes)
    paused = [each for each in link.mirrors if each.status == "PAUSED"]
    active = [each for each in link.mirrors if each.status not in _ENDED]
    if linking_settings.parse_link_flag(link.config, "cluster.link.paused", notes) or (
        paused and len(paused) == len(active)
    ):
        settings["state"] = "paused"
    else:
        for each in paused:
            notes.add_not_carried(f"mirror topic `{each.topic}` is paused", "a flow pauses as a whole", each.span)
    settings |= _start(link, notes)
    settings["sync"] = _sync(link, notes)
    include, exclude = _selection(link, notes)
    if any(each.kind == "literal" and is_internal_topic(each.text) for each in include):
        settings["topics"] = {"allow_internal": True}
    why = "a link keeps offsets as they are; Watershed translates them exactly, and keeps them with `offsets: aligned`"
    notes.add_not_carried(f"equal offsets on both sides of `{link.name}`", why, link.where)
    return ImportedFlow(link.source, link.target, include, exclude, _suffix(link), settings)


def _suffix(link: ClusterLink) -> str | None:
    """`eu-to-us-audit` between eu and us is the suffix `audit`; any other name of a link is not part of an id."""
    rest = link.name.removeprefix(f"{link.id}-")
    return rest if rest != link.name and re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", rest) else None


def _naming(link: ClusterLink, notes: ImportNotes) -> dict[str, Any]:
    said = link.config.get("cluster.link.prefix")
    prefix = said.text.strip() if said is not None else ""
    if said is None or not prefix:
        return {"naming": {"policy": "identity"}}
    if re.fullmatch(r"[a-zA-Z0-9._-]+", prefix) is None:
        notes.add_problem(
            "NAM302", f"`{said.name}`: a topic's name cannot hold this prefix", said.span, "letters, digits, `._-`"
        )
        notes.add_not_carried(f"`{said.name}`", "no prefix of a topic's name; the flow keeps the names", said.span)
        return {"naming": {"policy": "identity"}}
    if len(prefix) > linking_settings.MAX_LINK_PREFIX_LETTERS:
        message = (
            f"`{said.name}` has {len(prefix)} characters; a link takes at most "
            f"{linking_settings.MAX_LINK_PREFIX_LETTERS}"
        )
        notes.add_problem("NAM301", message, said.span, "choose a shorter prefix")
    separator = prefix.removeprefix(link.source)
    if separator != prefix and re.fullmatch(r"[._-]{1,3}", separator):
        return {"naming": {"policy": "prefix"} | ({} if separator == "." else {"separator": separator})}
    return {"naming": {"policy": "template", "template": prefix + "{topic}"}}


def _start(link: ClusterLink, notes: ImportNotes) -> dict[str, Any]:
    said = link.config.get("mirror.start.offset.spec")
    if said is None:
        return {}
    text = said.text.strip().lower()
    if text in ("earliest", "latest"):
        return {"delivery": {"start": text}}
    try:
        instant = render_instant(parse_instant(said.text.strip()))
    except ValueError as error:
        why = f"a flow starts `earliest`, `latest` or at an instant, and of this one {error}"
        notes.add_not_carried(f"`{said.name}`", why, said.span)
        return {}
    return {"delivery": {"start": {"timestamp": instant}}}


def _selection(link: ClusterLink, notes: ImportNotes) -> tuple[tuple[Selector, ...], tuple[Selector, ...]]:
    said = link.config.get("auto.create.mirror.topics.filters")
    enabled = linking_settings.parse_link_flag(link.config, "auto.create.mirror.topics.enable", notes)
    filters = LinkFilters()
    if enabled and said is not None:
        filters = parse_link_filters(said, "topicFilters", notes)
        _judge_filters(link, said, filters, notes)
    elif enabled:
        place = link.config["auto.create.mirror.topics.enable"]
        notes.add_problem(
            "SYN010", f"`{place.name}` is on, and no filter says for which topics", place.key, "add the filters"
        )
    elif said is not None and said.text.strip():
        why = "no effect while `auto.create.mirror.topics.enable` is not true"
        notes.add_problem("GRF216", f"`{said.name}` has {why}", said.key, "switch it on, or name mirror topics")
        notes.add_not_carried(f"`{said.name}`", why, said.span)
    chosen = {each for each in filters.include if not (each.kind == "literal" and each.text.startswith("__"))}
    include = {*chosen, *_mirrored(link, notes)}
    named = {each.topic for each in link.mirrors}
    # a mirror topic that was made by hand stays, whatever the filters exclude
    exclude = [each for each in filters.exclude if not (each.kind == "literal" and each.text in named)]
    for each in filters.exclude:
        if each.kind == "glob" and any(each.matches(name) for name in named):
            why = "mirror topics made by hand match it; exclude wins in a flow, so look at the selection"
            notes.add_not_carried(f"`{link.name}` excludes {each.text}", why, link.where)
    if not include:
        why = "no filter and no list of mirror topics says which; fill in `topics`"
        notes.add_not_carried(f"topics of the link `{link.name}`", why, link.where)
    return tuple(sorted(include)), tuple(each for each in exclude if each.text not in INTERNAL_TOPIC_GLOBS)


def _mirrored(link: ClusterLink, notes: ImportNotes) -> list[Selector]:
    said = link.config.get("cluster.link.prefix")
    prefix = said.text.strip() if said is not None else ""
    out = []
    for each in link.mirrors:
        if re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", each.topic) is None:
            notes.add_problem(
                "NAM302", f"`{link.name}`: a mirror of something that cannot be a topic's name", each.span
            )
        elif each.name is not None and each.name != prefix + each.topic:
            message = f"the mirror topic `{each.name}` of `{each.topic}` must be called `{prefix}{each.topic}`"
            notes.add_problem("SYN011", message, each.span, "a link renames by `cluster.link.prefix` only")
            notes.add_not_carried(f"mirror topic `{each.name}`", "a link does not rename like this", each.span)
        elif each.status in _ENDED:
            notes.add_not_carried(
                f"mirror topic `{each.topic}`", f"it is {each.status}: nothing is copied any more", each.span
            )
        elif each.topic.startswith("__"):
            notes.add_problem(
                "TPC401", f"`{each.topic}` is Kafka's own topic and not mirrored", each.span, "leave it out"
            )
        else:
            out.append(Selector("literal", each.topic))
    return out


def _judge_filters(link: ClusterLink, said: ForeignSetting, filters: LinkFilters, notes: ImportNotes) -> None:
    if not filters.include and filters.readable:
        notes.add_problem(
            "SYN010", f"`{said.name}` includes nothing, so no topic is mirrored", said.span, "add an INCLUDE"
        )
    if EVERY_NAME in filters.include and not filters.exclude:
        notes.add_problem(
            "NAM307",
            f"`{said.name}` takes every topic of the source, also those of other teams and tests",
            said.span,
            "name what belongs together with PREFIXED filters",
            ids=(link.id,),
        )
    start = link.config.get("mirror.start.offset.spec")
    if (
        start is not None
        and start.text.strip().lower() == "latest"
        and any(each.kind == "glob" for each in filters.include)
    ):
        notes.add_problem(
            "TPC417",
            f"`{start.name}` is latest: what is written to a new topic before its mirror exists is never copied",
            start.span,
            "start at `earliest`",
            more=(Label(said.span, "new topics come by these filters"),),
            ids=(link.id,),
        )
    for each in filters.include:
        if each.kind == "literal" and each.text.startswith("__"):
            notes.add_problem(
                "TPC401", f"`{said.name}`: `{each.text}` is Kafka's own topic and not mirrored", said.span
            )
    if any(each.kind == "glob" for each in filters.include):
        why = "a link mirrors them, such as `…-changelog`; Watershed leaves them out, unless they are named literally"
        notes.add_not_carried(f"internal topics that match `{said.name}`", why, said.span)


def _sync(link: ClusterLink, notes: ImportNotes) -> dict[str, Any]:
    configs: dict[str, Any] = {"mode": "continuous"}
    only = link.config.get("topic.config.sync.include")
    if only is not None:
        named = sorted({each.strip() for each in only.text.split(",") if each.strip()})
        configs |= {"include": [each for each in named if _CONFIG_KEY.fullmatch(each)]} if named else {}
    return {"configs": configs, "acls": _acls(link, notes), "groups": _groups(link, notes)}


def _acls(link: ClusterLink, notes: ImportNotes) -> dict[str, Any]:
    said = link.config.get("acl.filters")
    if not linking_settings.parse_link_flag(link.config, "acl.sync.enable", notes):
        if said is not None and said.text.strip():
            notes.add_not_carried(f"`{said.name}`", "no effect while `acl.sync.enable` is not true", said.span)
        return {"mode": "never"}
    prefix = link.config.get("cluster.link.prefix")
    if prefix is not None and prefix.text.strip():
        place = link.config["acl.sync.enable"]
        notes.add_problem(
            "SYN009",
            f"`{place.name}` and `{prefix.name}` exclude each other: such a link is refused",
            place.key,
            "keep one of them",
            more=(Label(prefix.key, "and the prefix"),),
        )
    if has_filter_for_all_acls(said, notes):
        return {"mode": "continuous", "include_write": "always"}
    if said is None or not said.text.strip():
        place = link.config["acl.sync.enable"]
        message = f"`{place.name}` is on, and no filter says for which ACLs: none is copied"
        notes.add_problem(
            "SYN010", message, place.key, "add `acl.filters`, or write `sync.acls` for those that you mean"
        )
        return {"mode": "never"}
    notes.add_not_carried(
        f"`{said.name}`", "filters on single ACLs cannot be said; say them in `sync.acls.include`", said.span
    )
    return {"mode": "never"}


def _groups(link: ClusterLink, notes: ImportNotes) -> dict[str, Any]:
    said = link.config.get("consumer.offset.group.filters")
    enabled = link.config.get("consumer.offset.sync.enable")
    if not linking_settings.parse_link_flag(link.config, "consumer.offset.sync.enable", notes):
        if said is not None and said.text.strip():
            notes.add_not_carried(
                f"`{said.name}`", "no effect while `consumer.offset.sync.enable` is not true", said.span
            )
        notes.add_problem(
            "SYC508",
            f"`{link.name}`: consumer groups are not written at the target (`consumer.offset.sync.enable` is not "
            "true): after a failover they start where their clients' default says",
            enabled.span if enabled is not None else link.where,
            "set it to true, or translate the offsets when you switch",
            ids=(link.id,),
            severity="info",
        )
        return {"mode": "never"}
    interval = linking_settings.parse_link_milliseconds(link.config, "consumer.offset.sync.ms", 1000, notes)
    out: dict[str, Any] = {"mode": "continuous", "interval": render_duration(30_000 if interval is None else interval)}
    if said is None or not said.text.strip():
        assert enabled is not None, "it is true"
        notes.add_not_carried(
            f"`{enabled.name}`", "no filter names groups, so it was taken for all of them", enabled.span
        )
        return out
    filters = parse_link_filters(said, "groupFilters", notes)
    if not filters.include:
        if filters.readable:
            message = f"`{said.name}` includes nothing: no group is synchronised"
            notes.add_problem("SYN010", message, said.span, "add an INCLUDE")
        return {"mode": "never"}
    if EVERY_NAME in filters.include and not set(_TOOL_GROUPS) <= set(filters.exclude):
        shown = ", ".join(each.text for each in _TOOL_GROUPS if each not in filters.exclude)
        notes.add_problem("SYC506", f"`{said.name}` also takes the tools' groups {shown}", said.span, "exclude them")
    if filters.include != (EVERY_NAME,):
        out["include"] = list(filters.include)
    if filters.exclude:
        out["exclude"] = list(filters.exclude)
    return out


def _check(links: list[ClusterLink], notes: ImportNotes) -> None:
    """What one link or a pair of links does wrong, beyond single settings."""
    for link in links:
        grouped = link.config.get("consumer.group.prefix.enable")
        if grouped is None or not linking_settings.parse_link_flag(link.config, "consumer.group.prefix.enable", notes):
            continue
        if link.bidirectional:
            notes.add_problem(
                "SYN009", f"`{grouped.name}` is refused on a bidirectional link", grouped.key, "leave it out"
            )
        elif "cluster.link.prefix" not in link.config:
            notes.add_problem("SYN012", f"`{grouped.name}` needs `cluster.link.prefix`", grouped.key)
    for one, other in _opposite(links):
        first, second = (each.config.get("consumer.offset.sync.enable") for each in (one, other))
        if first is None or second is None or {first.text.strip().lower(), second.text.strip().lower()} != {"true"}:
            continue
        sides = (TopicSelection(_group_filters(one)), TopicSelection(_group_filters(other)))
        if find_shortest_overlap(frozenset(("", "", side) for side in sides)).found:
            notes.add_problem(
                "SYC502",
                f"group offsets go {one.source} to {one.target} and back: a group that exists on both sides is moved "
                "to and fro",
                first.span,
                "synchronise a group in one direction, or use other group ids at each side",
                more=(Label(second.span, "the way back"),) if second.span != first.span else (),
                ids=(one.id, other.id),
            )


def _opposite(links: list[ClusterLink]) -> Iterator[tuple[ClusterLink, ClusterLink]]:
    """Every pair of links that run both ways, once."""
    routes: dict[tuple[str, str], list[ClusterLink]] = {}
    for link in links:
        yield from ((other, link) for other in routes.get((link.target, link.source), ())[:_MAX_PAIRS])
        routes.setdefault((link.source, link.target), []).append(link)


def _group_filters(link: ClusterLink) -> tuple[Selector, ...]:
    said = link.config.get("consumer.offset.group.filters")
    return (EVERY_NAME,) if said is None else parse_link_filters(said, "groupFilters", ImportNotes()).include
