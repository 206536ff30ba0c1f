"""SYN018 wrong-external-flow: an element of `external_flows` contradicts itself, or has a name that is taken.

Why: findings, plans and the status name a flow by its name, so two of one name could not be told apart. A key that
means nothing for the tool is a misunderstanding that would show only when records circulate.

Source: own; docs/external-flows.md
"""

from __future__ import annotations

from topology.rule import Rule, build_loader_check

RULE = Rule("SYN018", "wrong-external-flow", "error", __doc__, build_loader_check("SYN018"))
