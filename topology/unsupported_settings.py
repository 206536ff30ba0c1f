"""What the language can say and this version of the data plane does not do yet. `plan` and `apply` say so, each time;
the reference marks the keys. A row goes when its feature comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topology.model import Flow, Topology


@dataclass(frozen=True, slots=True)
class UnsupportedSetting:
    """A setting that a flow asks for and that has no effect."""

    flow: str
    path: str
    value: str
    instead: str

    def __str__(self) -> str:
        return f"{self.flow}: `{self.path}: {self.value}` is not done by this version; {self.instead}"


@dataclass(frozen=True, slots=True)
class UnsupportedRow:
    """path of the setting; whether a value of it asks for something that is not done; what happens instead; which flows
    it is done for, if any, and what the reference says of them."""

    path: str
    asked: Callable[[Any], bool]
    instead: str
    is_done: Callable[[Flow], bool] = lambda flow: False
    unless: str = ""


UNSUPPORTED_SETTINGS = (
    UnsupportedRow("provenance.header", lambda value: value is not None, "no header is written"),
    UnsupportedRow(
        "delivery.isolation", lambda value: value == "read_uncommitted", "records of aborted transactions stay out"
    ),
    UnsupportedRow(
        "partitions.mapping",
        lambda value: value == "key",
        "records keep their partition, and no `transform` of the flow changes a key",
        lambda flow: flow.plan.transform is not None and bool(flow.plan.transform.key_changes),
        "where no `transform` changes keys",
    ),
    UnsupportedRow("slo.on_breach", lambda value: value in ("pause", "fail"), "nothing watches the budget"),
)
UNSUPPORTED_PATHS = frozenset(row.path for row in UNSUPPORTED_SETTINGS)


def find_unsupported_settings(topology: Topology) -> Iterator[UnsupportedSetting]:
    """In the order of flows."""
    for flow in topology.flows:
        for row in UNSUPPORTED_SETTINGS:
            value = flow.settings.get(*row.path.split("."))
            if value is not None and row.asked(value) and not row.is_done(flow):
                shown = str(value).lower() if isinstance(value, bool) else str(value)
                yield UnsupportedSetting(flow.id, row.path, shown, row.instead)


def read_unsupported_settings(path: Path) -> list[UnsupportedSetting]:
    """Of a file that compiles. Raises UnreadableTopology."""
    from topology.loader import load_topology

    loaded = load_topology(path)
    return [] if loaded.topology is None else list(find_unsupported_settings(loaded.topology))
