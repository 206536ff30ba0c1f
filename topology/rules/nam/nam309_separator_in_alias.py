"""NAM309 separator-in-alias: what stands between the alias and the name also stands in the alias.

Why: `plant-a-orders` may be `orders` of `plant-a` or `a-orders` of `plant`. People, wildcard consumers and tools that
read the origin out of a name get it wrong, and two origins can meet in one name.

Source: apache/kafka DefaultReplicationPolicy.java, topicSource
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.text_escaping import shorten_and_escape

_BETWEEN = re.compile(r"\{source\}([^{}]+)\{topic\}|\{topic\}([^{}]+)\{source\}")


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        separator = _separator(flow)
        if topology is None or not separator or separator not in flow.source:
            continue
        cluster = topology.root.at("clusters", flow.source)
        yield Problem(
            "NAM309",
            f"flow {flow.id} separates with `{shorten_and_escape(separator)}`, which is also in the alias "
            f"`{flow.source}`",
            build_labels(
                (flow.settings.where("naming"), "separated here"),
                (None if cluster is None else cluster.key, "the alias"),
            ),
            path=f"{flow.path}.naming",
            ids=(flow.id, flow.source),
            help='separate with what no alias holds: `separator: "."`, or a template such as `{topic}.from.{source}`',
        )


def _separator(flow: Flow) -> str:
    """What stands between alias and name; empty when the alias does not come into the name, or nothing is between."""
    naming = flow.plan.naming
    if naming.policy == "prefix":
        return naming.before.removeprefix(flow.source)
    match = (
        _BETWEEN.search(flow.settings.get("naming", "template", default="")) if naming.policy == "template" else None
    )
    return (match[1] or match[2]) if match is not None else ""


RULE = Rule("NAM309", "separator-in-alias", "error", __doc__, check)
