"""The registry: every rule, sorted by code. A family is a folder, a rule a module in it; each family lists its own."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules import clu, grf, mig, nam, ops, sec, slo, syc, syn, tpc

RULES: tuple[Rule, ...] = (
    *clu.CLU_RULES,
    *grf.GRF_RULES,
    *mig.MIG_RULES,
    *nam.NAM_RULES,
    *ops.OPS_RULES,
    *sec.SEC_RULES,
    *slo.SLO_RULES,
    *syc.SYC_RULES,
    *syn.SYN_RULES,
    *tpc.TPC_RULES,
)
