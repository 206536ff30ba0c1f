"""MIG: migrations and cutover. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.mig import (
    mig821_undefined_flow,
)

RULES: tuple[Rule, ...] = (mig821_undefined_flow.RULE,)
