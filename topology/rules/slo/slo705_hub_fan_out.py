"""SLO705 hub-fan-out: the flows out of a cluster read more at their peaks than it can give.

Why: each flow reads everything again, so ten spokes cost ten times the topic; the hub's own consumers fall behind.
Counted as in SLO704, against `limits.egress` less the headroom.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.slo.peak_traffic import HEADROOM_OPTION, check_hub_traffic

_HELP = "copy once and pass it on (a chain), copy less, or make the cluster larger and say so in `limits`"


def check(context: RuleContext) -> Iterator[Problem]:
    return check_hub_traffic(context, "SLO705", "egress", "reads", "give", _HELP)


RULE = Rule("SLO705", "hub-fan-out", "warning", __doc__, check, options=(HEADROOM_OPTION,))
