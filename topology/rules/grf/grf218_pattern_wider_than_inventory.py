"""GRF218 pattern-wider-than-inventory: a pattern takes more topics than anybody has looked through.

Why: topics that match tomorrow join the flow by themselves, with their load and whatever they hold. A pattern that
takes more than `wide_pattern` topics already is rarely one that somebody read the list of.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [{glob: "logs.*"}]}
    --- # topology scan
    a: {topics: {logs.t00: {}, logs.t01: {}, logs.t02: {}, logs.t03: {}, logs.t04: {}, logs.t05: {}, logs.t06: {},
      logs.t07: {}, logs.t08: {}, logs.t09: {}, logs.t10: {}, logs.t11: {}, logs.t12: {}, logs.t13: {}, logs.t14: {},
      logs.t15: {}, logs.t16: {}, logs.t17: {}, logs.t18: {}, logs.t19: {}, logs.t20: {}, logs.t21: {}, logs.t22: {},
      logs.t23: {}, logs.t24: {}, logs.t25: {}, logs.t26: {}, logs.t27: {}, logs.t28: {}, logs.t29: {}, logs.t30: {},
      logs.t31: {}, logs.t32: {}, logs.t33: {}, logs.t34: {}, logs.t35: {}, logs.t36: {}, logs.t37: {}, logs.t38: {},
      logs.t39: {}, logs.t40: {}, logs.t41: {}, logs.t42: {}, logs.t43: {}, logs.t44: {}, logs.t45: {}, logs.t46: {},
      logs.t47: {}, logs.t48: {}, logs.t49: {}, logs.t50: {}}}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [{glob: "logs.*"}]}
    --- # topology scan
    a: {topics: {logs.web: {}, logs.app: {}}}

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Rule, RuleContext, RuleOption

_WIDE = RuleOption("wide_pattern", "count", 50, "How many topics a flow's patterns may take without a remark.")


def check(context: RuleContext) -> Iterator[Problem]:
    bound = context.option(_WIDE)
    for flow in context.topology.flows if context.topology is not None else ():
        if flow.plan.topics.literals is not None:
            continue
        names = context.facts.names(flow.source, flow.plan.topics)
        if len(names) > bound:
            shown = ", ".join(names[:3])
            yield Problem(
                "GRF218",
                f"{flow.id} takes {len(names)} topics by pattern ({shown}, …); new ones join by themselves",
                (Label(flow.settings.where("topics", "include")),),
                path=f"{flow.path}.topics",
                ids=(flow.id,),
                help="narrow the pattern, or raise `wide_pattern` in topology.lint.yaml",
            )


RULE = Rule("GRF218", "pattern-wider-than-inventory", "info", __doc__, check, needs="inventory", options=(_WIDE,))
