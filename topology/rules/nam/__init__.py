"""NAM: names and selectors. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.nam import (
    nam305_rename_not_reversible,
)

RULES: tuple[Rule, ...] = (nam305_rename_not_reversible.RULE,)
