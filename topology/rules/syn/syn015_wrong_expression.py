"""SYN015 wrong-expression: an expression of `transform` cannot be used.

Why: a flow whose expression cannot be parsed, names a field that `schema` does not have, has the wrong type, or calls a
function that a proof could not repeat (a clock, a random number, code of one's own), would stop at its first record.
Functions are looked at always, everything else with `topology lint --spark`, which starts Spark; the worker looks at
all of it before it copies.

Source: own; docs/transform.md
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.record_expressions import find_unknown_functions
from topology.rule import Rule, RuleContext

_CODE = "SYN015"


def check(context: RuleContext) -> Iterator[Problem]:
    told = set()
    for problem in context.problems(_CODE):  # what Spark said
        told.add(problem.path)
        yield problem
    for flow in context.topology.flows if context.topology is not None else ():
        for path, text in flow.plan.transform.expressions if flow.plan.transform is not None else ():
            whole = f"{flow.path}.transform.{path}"
            unknown = find_unknown_functions(text)
            if not unknown or whole in told:
                continue
            key, _, name = path.partition(".")
            yield Problem(
                _CODE,
                f"flow {flow.id}: {', '.join(f'`{each}`' for each in unknown)} is not among the functions that a proof "
                "can repeat",
                (Label(flow.settings.where("transform", key, *([name] if name else [])), "calls it"),),
                path=whole,
                ids=(flow.id,),
                help="docs/transform.md lists the functions",
            )


RULE = Rule(_CODE, "wrong-expression", "error", __doc__, check)
