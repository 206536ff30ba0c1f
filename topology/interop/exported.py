"""A topology as another tool's configuration: which formats there are, and what comes out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from topology.interop.imported import NotCarried
from topology.model import Topology


@dataclass(frozen=True, slots=True)
class Exported:
    """`text` ends in a newline. `not_carried` has spans in the topology file. `files`: names and texts, where the tool
    takes several files and `text` is all of them; None for one file."""

    format: str
    text: str
    not_carried: tuple[NotCarried, ...]
    files: tuple[tuple[str, str], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"schema": 1, "format": …, "text": …, "not_carried": […]}`"""
        left = [each.to_json() for each in self.not_carried]
        return {"schema": 1, "format": self.format, "text": self.text, "not_carried": left}


@dataclass(frozen=True, slots=True)
class _Target:
    """A format to write; `module` has `write(topology) -> Exported`."""

    name: str
    what: str
    module: str

    @property
    def write(self) -> Callable[[Topology], Exported]:
        function: Callable[[Topology], Exported] = importlib.import_module(self.module).write
        return function


TARGETS: tuple[_Target, ...] = (
    _Target("mm2", "MirrorMaker 2 properties", "topology.interop.mm2_export"),
    _Target(
        "strimzi", "Strimzi KafkaMirrorMaker2 resources (v1), one for each target", "topology.interop.strimzi_export"
    ),
    _Target("cluster-linking", "properties of cluster links, one for each flow", "topology.interop.linking_export"),
)


def export(topology: Topology, name: str) -> Exported:
    """Raises KeyError for a format that is not in TARGETS."""
    target = next((each for each in TARGETS if each.name == name), None)
    if target is None:
        raise KeyError(f"no format {name}; there are {', '.join(each.name for each in TARGETS)}")
    return target.write(topology)
