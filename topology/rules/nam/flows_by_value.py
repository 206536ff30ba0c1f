"""Flows by the place of the file where something about them is said, so that a line in `defaults:` is one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from watershed.topology.finding import FileSpan
from watershed.topology.model import CheckedValue, Flow


def group_flows_by_value(
    flows: Iterable[Flow], values: Callable[[Flow], Iterable[CheckedValue | None]]
) -> Iterator[tuple[CheckedValue, list[Flow]]]:
    """Each value once, in file order, with the flows that take it from there. What is None is not said."""
    found: dict[FileSpan, tuple[CheckedValue, list[Flow]]] = {}
    for flow in flows:
        for value in values(flow):
            if value is not None:
                found.setdefault(value.span, (value, []))[1].append(flow)
    for span in sorted(found):
        yield found[span]


def find_naming_value(flow: Flow, key: str) -> tuple[CheckedValue | None, ...]:
    """The value of `naming.<key>`, as one place."""
    return (flow.settings.at("naming", key),)


def list_flow_ids(flows: Iterable[Flow]) -> tuple[str, ...]:
    """The ids of the flows, sorted."""
    return tuple(sorted(flow.id for flow in flows))
