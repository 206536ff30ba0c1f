"""SYC509 config-sync-fights-override: a topic config is kept equal to the source and has a value of its own at the
target.

Why: every cycle resets what somebody set at the target, and the two values alternate without a word. Found for keys in
both `include` and `set`, for facts declared for the target, and for keys that a scan sees set on the target's topics.
`set` alone wins over a sync that names no keys.

Source: apache/kafka MirrorSourceConnector.java, which even deletes keys that are default at the source
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names, sort_unique_names
from watershed.topology.rules.tpc.target_topics import TOPIC_CONFIG_KEYS
from watershed.topology.target_configs import is_synced_config
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        if flow.plan.sync_configs != "continuous":
            continue
        yield from _said_twice(flow)
        keys = {
            name: key
            for name, key in TOPIC_CONFIG_KEYS.items()
            if is_synced_config(flow.plan, key) and key not in dict(flow.plan.configs_set)
        }
        found: dict[str, list[FlowTopic]] = {}
        for topic in topics:
            for key in {*_declared(topic, keys), *_overridden(context, topic)}:
                found.setdefault(key, []).append(topic)
        if found:
            yield _problem(flow, found)


def _said_twice(flow: Flow) -> Iterator[Problem]:
    values = flow.settings.at("sync", "configs", "set")
    for each in flow.settings.list("sync", "configs", "include"):
        said = values.fields.get(each.data) if values is not None else None
        if said is not None:
            yield Problem(
                "SYC509",
                f"flow {flow.id} keeps {each.data} equal to {flow.source} and sets it at {flow.target}",
                build_labels((said.key or said.span, "set here"), (each.span, "kept equal here")),
                path=f"{flow.path}.sync.configs",
                ids=(flow.id, each.data),
                help=f"take {each.data} out of `include`, or out of `set`",
            )


def _declared(topic: FlowTopic, keys: dict[str, str]) -> Iterator[str]:
    """Keys whose declared (not scanned) facts differ."""
    if topic.exists or topic.target.span is None:
        return
    for name, key in keys.items():
        before, after = getattr(topic.source, name), getattr(topic.target, name)
        if before is not None and after is not None and before != after:
            yield key


def _overridden(context: RuleContext, topic: FlowTopic) -> Iterator[str]:
    """Keys set on both scanned topics themselves, with different values."""
    flow = topic.flow
    source = context.facts.seen(flow.source, topic.name) if topic.name is not None else None
    target = context.facts.seen(flow.target, topic.target_label)
    if source is not None and target is not None:
        for key in target.overridden:
            differs = key in source.overridden and source.config(key) != target.config(key)
            if differs and is_synced_config(flow.plan, key) and key not in dict(flow.plan.configs_set):
                yield key


def _problem(flow: Flow, found: dict[str, list[FlowTopic]]) -> Problem:
    keys = sorted(found)
    topics = sort_unique_names(topic.target_label for each in found.values() for topic in each)
    first = found[keys[0]][0]
    return Problem(
        "SYC509",
        f"flow {flow.id} keeps {', '.join(keys)} equal to {flow.source}, but {flow.target} has a value of its "
        f"own for {render_some_names(topics)}: every cycle resets it",
        build_labels(
            (flow.settings.where("sync", "configs", "mode"), "kept equal"),
            (first.target.span, f"the value at {flow.target}"),
            (first.source.span, f"the value at {flow.source}"),
        ),
        path=f"{flow.path}.sync.configs",
        ids=(flow.id, *keys),
        help=f"to keep the target's value say `exclude: [{', '.join(keys)}]`, or say it in `set`; or remove it there",
    )


RULE = Rule("SYC509", "config-sync-fights-override", "error", __doc__, check)
