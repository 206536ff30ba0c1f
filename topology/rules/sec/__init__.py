"""SEC: security. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule

RULES: tuple[Rule, ...] = ()
