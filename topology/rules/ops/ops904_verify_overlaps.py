"""OPS904 verify-overlaps: flows are to be proven again before one proof can be done.

Why: all flows of a topology are proven together, as often as the shortest `verify.every` says, one run at a time. A
proof starts a Spark session and, from L1 on, reads both sides whole; what starts late is never caught up, and the
clusters are read all day.

Source: own; `verify_start` and `verify_rate` are assumptions, set them to what your proofs report
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.model import Flow
from topology.quantities import DURATION_UNITS_MS, render_duration, render_rate, render_size
from topology.rule import Rule, RuleContext, RuleOption
from topology.rules.finding_text import build_labels, render_plural, sort_unique_names

_START = RuleOption("verify_start", "duration", 30_000, "What a proof takes before it reads: its Spark session.")
_RATE = RuleOption("verify_rate", "rate", 100 * 2**20, "How fast a proof reads, both clusters together.")


def check(context: RuleContext) -> Iterator[Problem]:
    flows = [flow for flow in (context.topology.flows if context.topology else ()) if flow.plan.verify.every_ms]
    if context.topology is None or not flows:
        return
    shortest = min(flows, key=lambda flow: (flow.plan.verify.every_ms or 0, flow.id))
    every = shortest.plan.verify.every_ms or 0
    start, rate = context.option(_START), max(1, context.option(_RATE))
    stored = _stored(context) if _reads(context) else 0
    needed = start + 2 * stored * DURATION_UNITS_MS["s"] // rate
    if every < needed:
        yield _problem(shortest, flows, every, needed, _derived(start, stored, rate))


def _problem(shortest: Flow, flows: list[Flow], every: int, needed: int, derived: str) -> Problem:
    """needed and every are ms; the message has them in whole units, rounded up."""
    takes = _rounded(needed)
    same = sort_unique_names(flow.id for flow in flows if flow.plan.verify.every_ms == every)
    return Problem(
        "OPS904",
        f"{render_plural(len(same), 'flow')} shall be proven every {render_duration(every)}, and a proof takes "
        f"{takes} or more",
        build_labels((shortest.settings.where("verify", "every"), f"every {render_duration(every)}")),
        path=f"{shortest.path}.verify.every",
        ids=same,
        help=f"prove less often than every {takes}, or less deep (`level: L0` compares metadata only)",
        notes=(derived,),
    )


def _reads(context: RuleContext) -> bool:
    """Whether some proof looks at records; L1 is what is done where nothing is said."""
    flows = context.topology.flows if context.topology is not None else ()
    return any(flow.settings.get("verify", "level", default="L1") != "L0" for flow in flows)


def _stored(context: RuleContext) -> int:
    """Bytes that all flows' sources hold, as far as a scan saw them: not more than what must be read."""
    total = 0
    for flow, topics in context.facts.by_flow:
        for topic in topics:
            seen = context.facts.seen(flow.source, topic.name) if topic.name is not None else None
            total += (seen.size_bytes or 0) if seen is not None else 0
    return total


def _derived(start: int, stored: int, rate: int) -> str:
    read = f" + 2 × {_about(stored)} at {render_rate(rate)}" if stored else ""
    return f"{render_duration(start)} for a Spark session{read}; options `verify_start` and `verify_rate`"


def _about(size: int) -> str:
    """To a whole GiB or MiB, downwards."""
    unit = 2**30 if size >= 10 * 2**30 else 2**20
    return render_size(size // unit * unit) if size >= unit else render_size(size)


def _rounded(ms: int) -> str:
    unit = DURATION_UNITS_MS["m"] if ms > 10 * DURATION_UNITS_MS["m"] else DURATION_UNITS_MS["s"]
    return render_duration(-(-ms // unit) * unit)


RULE = Rule("OPS904", "verify-overlaps", "warning", __doc__, check, options=(_START, _RATE))
