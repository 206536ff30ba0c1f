"""SEC613 prune-without-effect: `prune` asks for something that never happens.

Why: somebody who reads `prune: auto` believes that a right revoked at the source ends at the target. It does not where
the kind is not carried over at all, and not where a flow in the opposite direction gives a revoked right back at once.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.sync_settings import AclSync, UserSync


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    for flow in flows:
        for kind, sync in (("acls", flow.plan.sync.acls), ("users", flow.plan.sync.users)):
            why, help_ = _explain_no_effect(flow, kind, sync, flows)
            if why:
                yield Problem(
                    "SEC613",
                    f"flow {flow.id}: `sync.{kind}.prune: {sync.prune.mode}` removes nothing: {why}",
                    build_labels((flow.settings.where("sync", kind, "prune"), flow.id), (flow.declared, flow.id)),
                    path=f"{flow.path}.sync.{kind}.prune",
                    ids=(flow.id,),
                    help=help_,
                )


def _explain_no_effect(flow: Flow, kind: str, sync: AclSync | UserSync, flows: tuple[Flow, ...]) -> tuple[str, str]:
    """The reason and the help; empty where it has an effect."""
    if sync.prune.mode == "never":
        return "", ""
    if sync.mode == "never":
        return f"`sync.{kind}.mode` is `never`, so the flow brings none", f"say `mode: continuous` under `sync.{kind}`"
    back = next(
        (
            each
            for each in flows
            if (each.source, each.target, each.plan.state) == (flow.target, flow.source, "running")
            and each.plan.sync.acls.mode == "continuous"
        ),
        None,
    )
    if kind == "acls" and flow.plan.state == "running" and back is not None:
        return f"{back.id} gives a right that is revoked at {flow.source} back", (
            f"say which side leads: `sync.acls.mode: once`, or `never`, in flow {back.id}"
        )
    return "", ""


RULE = Rule("SEC613", "prune-without-effect", "warning", __doc__, check)
