"""GRF: loops, duplicates, collisions, starvation. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.grf import (
    grf201_identity_cycle,
    grf203_prefix_growth,
    grf204_multi_writer_topic,
    grf205_diamond_double_delivery,
    grf214_conflicting_flows,
)

RULES: tuple[Rule, ...] = (
    grf201_identity_cycle.RULE,
    grf203_prefix_growth.RULE,
    grf204_multi_writer_topic.RULE,
    grf205_diamond_double_delivery.RULE,
    grf214_conflicting_flows.RULE,
)
