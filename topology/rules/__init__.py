"""The registry: every rule, sorted by code. A family is a folder, a rule a module in it; each family lists its own."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules import clu, grf, mig, nam, ops, sec, slo, syc, syn, tpc

RULES: tuple[Rule, ...] = (
    *clu.RULES,
    *grf.RULES,
    *mig.RULES,
    *nam.RULES,
    *ops.RULES,
    *sec.RULES,
    *slo.RULES,
    *syc.RULES,
    *syn.RULES,
    *tpc.RULES,
)
