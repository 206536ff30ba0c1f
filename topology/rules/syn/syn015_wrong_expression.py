"""SYN015 wrong-expression: an expression of `transform` cannot be used.

Why: a flow whose expression cannot be parsed, names a field that `schema` does not have, has the wrong type, or calls a
function that a proof could not repeat (a clock, a random number, code of one's own), would stop at its first record.
Functions are looked at always, everything else with `topology lint --spark`, which starts Spark; the worker looks at
all of it before it copies. A flow that changes keys without `partitions: {mapping: key}` would break what readers of
keys rely on: that all records of one key stand in one partition, in order. The file has to say that this is meant.
With `--spark --registries`, a `schema` that the newest version of a subject does not fit is a warning: records of that
version would be rejected. So is format json where there is a subject: its clients put a schema id in front of the JSON.

Source: own; docs/transform.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.record_expressions import find_unknown_functions
from watershed.topology.rule import Rule, RuleContext

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
        yield from _find_unannounced_keys(flow)


def _find_unannounced_keys(flow: Flow) -> Iterator[Problem]:
    places = () if flow.plan.transform is None else flow.plan.transform.key_changes
    if not places or flow.settings.get("partitions", "mapping", default="preserve") == "key":
        return
    key, _, name = places[0].partition(".")
    yield Problem(
        _CODE,
        f"flow {flow.id} changes keys, and a record keeps its partition: equal new keys may lie in several",
        (Label(flow.settings.where("transform", key, *([name] if key == "set" else [])), "changes keys"),),
        path=f"{flow.path}.transform.{places[0]}",
        ids=(flow.id,),
        help="say `partitions: {mapping: key}` if readers can live with that, or leave keys as they are "
        "(docs/transform.md#changed-keys)",
    )


RULE = Rule(_CODE, "wrong-expression", "error", __doc__, check)
