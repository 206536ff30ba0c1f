"""SYC510 durability-key-synced: a config key that belongs to the target's own brokers is to be taken over from the
source.

Why: how many replicas must be in sync, whether an unclean leader may be elected and which replicas are throttled
follows from the brokers of one cluster. Watershed leaves these keys out whatever `include` says, so the line promises
what does not happen; `set` gives them a value at the target.

Source: apache/kafka DefaultConfigPropertyFilter.java
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names

_KEYS = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        found = [each for each in flow.settings.list("sync", "configs", "include") if each.data in _KEYS]
        if found and flow.plan.sync_configs != "never":
            names = [each.data for each in found]
            yield Problem(
                "SYC510",
                f"flow {flow.id} takes {render_some_names(names)} over from {flow.source}, which only the brokers of "
                f"{flow.target} can decide",
                build_labels(*((each.span, "is never taken over") for each in found)),
                path=f"{flow.path}.sync.configs.include",
                ids=(flow.id, *names),
                help="take it out; where the target needs a value of its own, say it under `sync.configs.set`",
            )


RULE = Rule("SYC510", "durability-key-synced", "warning", __doc__, check)
