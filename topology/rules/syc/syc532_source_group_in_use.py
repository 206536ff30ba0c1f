"""SYC532 source-group-in-use: a scan sees members in the group that `compatibility.source_group` names.

Why: a consumer group with members takes commits from its members only, so tools that show lag see nothing of the flow.
When its last member has left, the flow writes over the positions of an application.

Source: apache/kafka GroupMetadataManager, validateOffsetCommit
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.rules.syc.syc531_source_group_of_an_application import get_source_group


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        group = get_source_group(flow)
        cluster = context.inventory.cluster(flow.source) if context.inventory is not None else None
        seen = cluster.groups.get(group) if cluster is not None and group is not None else None
        if seen is not None and seen.members > 0:
            yield Problem(
                "SYC532",
                f"group `{group}` at {flow.source}, under which flow {flow.id} would commit its position, has "
                f"{render_plural(seen.members, 'member')}",
                build_labels((flow.settings.where("compatibility", "source_group"), "this group")),
                path=f"{flow.path}.compatibility.source_group",
                ids=(flow.id, str(group)),
                help="choose a group id that no application uses",
            )


RULE = Rule("SYC532", "source-group-in-use", "error", __doc__, check, needs="inventory")
