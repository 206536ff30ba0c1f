"""MIG813 sample-too-small: a proof looks at a share of the records that is too small to see what it is meant to see.

Why: of k bad records a sample of the share f sees at least one with the chance 1 - (1 - f)^k: five percent see a
single bad record once in twenty. Asked for are 95%, for as many bad records as must not be missed (option
`bad_records`, 1). Comparing digests of everything is cheap; sample where reading is not.

Source: own; the binomial distribution
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext, RuleOption
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.rules.mig.declared_waves import list_declared_waves

_BAD = RuleOption("bad_records", "count", 1, "How many bad records a sampled proof must not miss.")
_SURE = 0.95


def check(context: RuleContext) -> Iterator[Problem]:
    bad = context.option(_BAD)
    for move in list_declared_waves(context.topology):
        for gate in move.gates("verify"):
            share = gate.get("sample", default=1.0)
            seen = 1 - (1 - share) ** bad
            if gate.get("level") == "L0" or seen >= _SURE:
                continue
            yield Problem(
                "MIG813",
                f"the proof of wave `{move.name}` looks at {share * 100:g}% of the records: it sees "
                f"{render_plural(bad, 'bad record')} with a chance of {seen * 100:.3g}%",
                build_labels((gate.where("sample"), "a sample"), (move.span, "this wave")),
                path=f"{move.path}.gates",
                ids=(move.name,),
                notes=(f"1 - (1 - {share:g})^{bad} = {seen:.4f}; asked for is {_SURE}", *_enough(share)),
                help="leave `sample` out: every record is compared",
            )


def _enough(share: float) -> tuple[str, ...]:
    if share <= 0:
        return ()
    count = math.ceil(math.log(1 - _SURE) / math.log(1 - share))
    return (f"{count:,} bad records or more are seen with {_SURE:.0%}",)


RULE = Rule("MIG813", "sample-too-small", "warning", __doc__, check, options=(_BAD,))
