"""What the language can say and this version of the data plane does not do yet. `plan` and `apply` say so, each time;
the reference marks the keys. A row goes when its feature comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topology.model import Topology


@dataclass(frozen=True, slots=True)
class Undone:
    """A setting that a flow asks for and that has no effect."""

    flow: str
    path: str
    value: str
    instead: str

    def __str__(self) -> str:
        return f"{self.flow}: `{self.path}: {self.value}` is not done by this version; {self.instead}"


@dataclass(frozen=True, slots=True)
class Row:
    """path of the setting; whether a value of it asks for something that is not done; what happens instead."""

    path: str
    asked: Callable[[Any], bool]
    instead: str


ROWS = (
    Row("provenance.header", lambda value: value is not None, "no header is written"),
    Row("delivery.isolation", lambda value: value == "read_uncommitted", "records of aborted transactions stay out"),
    Row("partitions.mapping", lambda value: value == "key", "records keep their partition"),
    Row("slo.on_breach", lambda value: value in ("pause", "fail"), "nothing watches the budget"),
)
PATHS = frozenset(row.path for row in ROWS)


def undone(topology: Topology) -> Iterator[Undone]:
    """In the order of flows."""
    for flow in topology.flows:
        for row in ROWS:
            value = flow.settings.get(*row.path.split("."))
            if value is not None and row.asked(value):
                shown = str(value).lower() if isinstance(value, bool) else str(value)
                yield Undone(flow.id, row.path, shown, row.instead)


def undone_at(path: Path) -> list[Undone]:
    """Of a file that compiles. Raises UnreadableTopology."""
    from topology.load import load_path

    loaded = load_path(path)
    return [] if loaded.topology is None else list(undone(loaded.topology))
