"""Which flows cannot have equal offsets at both ends (`offsets: aligned`), as far as the file tells.

What only the clusters know (a target that is not empty, another partition count, the price) is found when a topic is
first placed (`replicator.copy.aligned.aligned_topic_choice`), and shown by `topology plan`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from watershed.topology.delivery_mode import DeliveryMode
from watershed.topology.model import Flow, Topology
from watershed.topology.topic_symbols import carry_symbol, list_source_symbols

# Path of a setting; which values of it speak against equal offsets; why.
_AGAINST: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("partitions.mapping", lambda value: value == "key", "keys choose the partition at the target"),
    ("delivery.start", lambda value: value != "earliest", "the copy begins in the middle (`delivery.start`)"),
    (
        "delivery.rejected",
        lambda value: value == "quarantine",
        "records that the target refuses are left out (`rejected: quarantine`), and a look could not tell them from "
        "lost ones",
    ),
    ("provenance.forward", lambda value: value == "local", "records that other flows brought are left out"),
    ("provenance.header", lambda value: value is not None, "each record gets a header (`provenance.header`)"),
)


def explain_not_aligned(flow: Flow, how: DeliveryMode) -> str:
    """Why a flow's offsets are translated although the file asks for equal ones; empty where nothing is against it, or
    the file does not ask. how: whether others write to its target partitions."""
    if flow.plan.offsets != "aligned":
        return ""
    if how.delivery == "transactions":
        return f"it copies in transactions, whose markers take offsets: {how.reason}"
    for path, speaks_against, why in _AGAINST:
        value = flow.settings.get(*path.split("."))
        if value is not None and speaks_against(value):
            return why
    if flow.plan.sync.schemas.translated:
        return "schema ids are translated, so each record is rewritten"
    return ""


def find_flows_filled_first(topology: Topology) -> dict[str, str]:
    """Flow id → why its offsets are translated: another flow of the file brings its source topics there with equal
    offsets, and while it fills such a topic, what the topic holds and where it begins means nothing."""
    asking = [flow for flow in topology.flows if flow.plan.offsets == "aligned"]
    into: dict[str, list[Flow]] = defaultdict(list)
    for flow in asking:
        into[flow.target].append(flow)
    found: dict[str, str] = {}
    for flow in asking:
        for before in into[flow.source]:
            arriving = (
                symbol for birth in list_source_symbols(before.plan) for symbol in carry_symbol(before.plan, birth)
            )
            if before is not flow and any(any(True for _ in carry_symbol(flow.plan, symbol)) for symbol in arriving):
                found.setdefault(flow.id, f"flow {before.id} has to fill its source topics first")
    return found
