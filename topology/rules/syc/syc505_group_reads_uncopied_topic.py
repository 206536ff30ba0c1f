"""SYC505 group-reads-uncopied-topic: a group whose positions are carried over also reads topics that no flow carries
there.

Why: at the target the group finds only a part of what it reads, and begins the rest at nothing.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names, sort_unique_names
from watershed.topology.rules.syc.declared_group_sync import build_declared_group_sync, list_scanned_groups
from watershed.topology.selectors import is_internal_topic


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    along: dict[tuple[str, str], list[Flow]] = {}
    for flow in context.topology.flows:
        along.setdefault((flow.source, flow.target), []).append(flow)
    for flow in context.topology.flows:
        groups = build_declared_group_sync(flow)
        missing: dict[str, list[str]] = {}
        for group in list_scanned_groups(context, groups):
            for topic in sorted(group.offsets):
                carried = any(each.plan.selects(topic) for each in along[flow.source, flow.target])
                if not carried and not is_internal_topic(topic):
                    missing.setdefault(group.id, []).append(topic)
        if missing:
            topics = sort_unique_names(topic for each in missing.values() for topic in each)
            yield Problem(
                "SYC505",
                f"flow {flow.id} carries positions of {render_some_names(list(missing))} to {flow.target}, but no "
                f"flow carries "
                f"{render_some_names(topics)}, read by the same groups",
                build_labels(
                    (groups.span, "positions are carried over"), (flow.settings.where("topics", "include"), "topics")
                ),
                path=f"{flow.path}.sync.groups",
                ids=(flow.id, *list(missing)[:3]),
                help="carry these topics too, or exclude the group",
            )


RULE = Rule("SYC505", "group-reads-uncopied-topic", "warning", __doc__, check, needs="inventory")
