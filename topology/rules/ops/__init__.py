"""OPS: operation. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.ops import (
    ops901_no_owner,
    ops902_flow_id_collision,
    ops903_pool_oversubscribed,
    ops905_plan_stale,
    ops906_facts_drift,
    ops907_placements_differ,
)

OPS_RULES: tuple[Rule, ...] = (
    ops901_no_owner.RULE,
    ops902_flow_id_collision.RULE,
    ops903_pool_oversubscribed.RULE,
    ops905_plan_stale.RULE,
    ops906_facts_drift.RULE,
    ops907_placements_differ.RULE,
)
