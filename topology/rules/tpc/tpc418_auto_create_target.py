"""TPC418 auto-create-target: the target creates topics by itself when somebody asks for them.

Why: a consumer or producer that comes first makes the topic with the brokers' default partitions, replicas and configs.
The flow finds it there, does not change it, and stops where it has too few partitions.

Source: strimzi/strimzi-kafka-operator#7640
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_plural


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.inventory is None:
        return
    into: dict[str, list[Flow]] = {}
    for flow in context.topology.flows:
        into.setdefault(flow.target, []).append(flow)
    for alias, flows in sorted(into.items()):
        cluster = context.inventory.cluster(alias)
        if cluster is None or cluster.configs.get("auto.create.topics.enable") != "true":
            continue
        declared = context.topology.root.at("clusters", alias)
        yield Problem(
            "TPC418",
            f"{alias} creates topics by itself (auto.create.topics.enable); it is the target of "
            f"{render_plural(len(flows), 'flow')}",
            (Label((declared.key or declared.span) if declared is not None else flows[0].declared, "this target"),),
            path=f"clusters.{alias}",
            ids=(alias,),
            notes=tuple(f"{key}: {cluster.configs[key]}" for key in _DEFAULTS if key in cluster.configs),
            help=f"set auto.create.topics.enable to false on the brokers of {alias}",
        )


_DEFAULTS = ("num.partitions", "default.replication.factor")
RULE = Rule("TPC418", "auto-create-target", "warning", __doc__, check, needs="live")
