"""SYC506 tool-groups-selected: groups of tools (`console-consumer-*`, `connect-*`, `__*`) are synchronised.

Why: console consumers are noise that never comes back, and a connector's positions belong to its workers: at the target
they meet other workers' state under the same name.

Source: apache/kafka DefaultGroupFilter.java
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names, sort_unique_names
from watershed.topology.rules.syc.declared_group_sync import build_declared_group_sync, list_scanned_groups
from watershed.topology.sync_settings import TOOL_GROUP_GLOBS, is_tool_group


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        groups = build_declared_group_sync(flow)
        if groups.mode == "never":
            continue
        # a glob that begins like a tool's groups selects nothing else, so one example speaks for all
        named = [each for each in flow.settings.list("sync", "groups", "include") if each.data.kind != "regex"]
        examples = [(each, each.data.text.replace("*", "x").replace("?", "x")) for each in named]
        said = [each for each, example in examples if is_tool_group(example) and groups.selects(example)]
        seen = [group.id for group in list_scanned_groups(context, groups) if is_tool_group(group.id)]
        names = sort_unique_names([*(str(each.data) for each in said), *seen])
        if names:
            yield Problem(
                "SYC506",
                f"flow {flow.id} synchronises {render_some_names(names)}: groups of tools",
                build_labels(*((each.span, "selected here") for each in said), (groups.span, "this sync")),
                path=f"{flow.path}.sync.groups",
                ids=(flow.id, *names[:3]),
                help="exclude them: `exclude: ["
                + ", ".join(f'{{glob: "{each}"}}' for each in TOOL_GROUP_GLOBS[:3])
                + "]`",
            )


RULE = Rule("SYC506", "tool-groups-selected", "warning", __doc__, check)
