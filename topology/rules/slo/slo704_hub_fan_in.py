"""SLO704 hub-fan-in: the flows into a cluster bring more at their peaks than it can take.

Why: after an outage all of them catch up at the same moment, and the hub's own producers are starved. Added up are
`expected.peak_ingress` of the running flows (or the rates that a scan saw), against `limits.ingress` less the headroom:
`limits.headroom`, else the option `headroom`, 30%. Flows whose peak nobody knows are not counted.

Source: confluentinc/kcp sizes by the 95th percentile and 30 % more
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.slo.peak_traffic import HEADROOM_OPTION, check_hub_traffic

_HELP = "copy less, spread the flows over several clusters, or make this one larger and say so in `limits`"


def check(context: RuleContext) -> Iterator[Problem]:
    return check_hub_traffic(context, "SLO704", "ingress", "brings", "take", _HELP)


RULE = Rule("SLO704", "hub-fan-in", "error", __doc__, check, options=(HEADROOM_OPTION,))
