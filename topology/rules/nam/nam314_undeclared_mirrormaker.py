"""NAM314 undeclared-mirrormaker: a scan saw MirrorMaker 2's own topics on a cluster, and the file says nothing of it.

Why: what it copies can circulate with our flows, arrive twice, or meet them in one topic. Nothing of that is found as
long as `external_flows` does not declare it. Where it has stopped, say `enabled: false`: what it copied stands there.

Source: apache/kafka MirrorMakerConfig.java (`mm2-offset-syncs.ALIAS.internal`, `ALIAS.checkpoints.internal`)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.nam.nam308_heartbeat_suffix import list_mirrormaker_topics


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    declared = {
        alias
        for flow in (topology.external_flows if topology is not None else ())
        if flow.external is not None and flow.external.tool == "mirrormaker2"
        for alias in (flow.source, flow.target)
    }
    clusters = topology.root.at("clusters") if topology is not None else None
    for alias, value in clusters.fields.items() if clusters is not None else ():
        seen = list_mirrormaker_topics(context, alias)
        if seen and alias not in declared:
            yield Problem(
                "NAM314",
                f"MirrorMaker 2 has its own topic `{seen[0]}` on cluster `{alias}`, so it copies from or to there",
                (Label(value.key or value.span),),
                path=f"clusters.{alias}",
                ids=(alias,),
                help="declare it under `external_flows`; `topology import FILE --keep-running all` writes that section",
            )


RULE = Rule("NAM314", "undeclared-mirrormaker", "info", __doc__, check, needs="inventory")
