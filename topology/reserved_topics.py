"""Names at a target that no flow may write: Kafka's own topics, and those in which Watershed keeps its state."""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.plan import PlanFlow

DRILL_TOPIC_PREFIX = "watershed.drill."  # copies of a rehearsal, which Watershed makes and deletes itself
_KEPT = (
    ("__", "Kafka's brokers and tools keep their own state there"),
    ("watershed.", "Watershed keeps its own state there"),
    ("_watershed", "Watershed keeps its own state there"),
)
_CONTROL = ("watershed.flows", "watershed.ledger", "watershed.status", "watershed.journal")


def explain_reserved_topic(name: str) -> str:
    """Why a flow may not write a topic of this name: what is stored there. Empty if it may."""
    if name.startswith(DRILL_TOPIC_PREFIX):
        return ""
    if "_" in name and name.replace("_", ".") in _CONTROL:
        return "Kafka then refuses to create Watershed's own topic, whose name differs by `.` and `_` only"
    return next((whose for start, whose in _KEPT if name.startswith(start)), "")


def find_reserved_targets(flow: PlanFlow) -> Iterator[tuple[str, str]]:
    """Pairs (source topic or `*`, target topic) for which the flow's naming alone gives a reserved target name."""
    if flow.naming.policy != "map" and explain_reserved_topic(f"{flow.naming.before}x"):  # the prefix decides for all
        yield "*", f"{flow.naming.before}*{flow.naming.after}"
        return
    named = {each.text for each in flow.topics.include if each.kind == "literal" and flow.selects(each.text)}
    for name in sorted(named.union(flow.naming.there)):
        if explain_reserved_topic(flow.target_topic(name)):
            yield name, flow.target_topic(name)
