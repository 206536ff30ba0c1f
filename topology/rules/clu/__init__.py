"""CLU: clusters. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.clu import (
    clu101_undefined_cluster,
    clu107_self_flow,
)

RULES: tuple[Rule, ...] = (
    clu101_undefined_cluster.RULE,
    clu107_self_flow.RULE,
)
