"""SYC517 metadata-both-ways: two running flows keep the same rights, quotas or topic configs equal in opposite
directions.

Why: each side is the other's source. A right that is taken away on one side comes back from the other one, and two
values of one quota or config change places again and again. A paused way back does no harm.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.syc.two_way_group_sync import find_returning_topic

_WHAT = {"configs": "topic configs", "acls": "ACLs", "quotas": "client quotas"}


def check(context: RuleContext) -> Iterator[Problem]:
    there: dict[tuple[str, str, str], list[Flow]] = {}
    for flow in context.topology.flows if context.topology is not None else ():
        for kind in _WHAT:
            if flow.plan.state == "running" and _mode(flow, kind) == "continuous":
                there.setdefault((kind, flow.source, flow.target), []).append(flow)
    for (kind, source, target), flows in sorted(there.items(), key=lambda item: item[0]):
        back = there.get((kind, target, source), []) if source < target else []
        pairs = ((one, two) for one in flows for two in back)
        found = next((pair for pair in pairs if kind != "configs" or find_returning_topic(*pair) is not None), None)
        if found is None:
            continue
        one, two = found
        yield Problem(
            "SYC517",
            f"{one.id} and {two.id} both keep {_WHAT[kind]} equal, in opposite directions",
            build_labels(
                (one.settings.where("sync", kind, "mode"), one.id),
                (two.settings.where("sync", kind, "mode"), two.id),
                (one.declared, one.id),
                (two.declared, two.id),
            ),
            path=f"{one.path}.sync.{kind}",
            ids=(one.id, two.id),
            help=f"say which side leads: `sync.{kind}.mode: once`, or `never`, in the other flow",
        )


def _mode(flow: Flow, kind: str) -> str:
    sync = flow.plan.sync
    return {"configs": flow.plan.sync_configs, "acls": sync.acls.mode, "quotas": sync.quotas.mode}[kind]


RULE = Rule("SYC517", "metadata-both-ways", "warning", __doc__, check)
