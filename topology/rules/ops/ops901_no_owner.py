"""OPS901 no-owner: `metadata.owner` is missing.

Why: when a flow stands still at night somebody must be called, and the file is where people look first.

Source: streamthoughts/jikkou examples/policies/require-owner-label.yaml
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    metadata = context.topology.root.at("metadata") if context.topology is not None else None
    if metadata is not None and metadata.at("owner") is None:
        yield Problem(
            "OPS901",
            "the topology has no owner",
            (Label(metadata.key or metadata.span),),
            path="metadata.owner",
            help="say who is called when it breaks: `owner: team-…`",
        )


RULE = Rule("OPS901", "no-owner", "warning", __doc__, check, profile="strict")
