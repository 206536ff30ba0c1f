"""A topology as another tool's configuration: which formats there are, and what comes out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from watershed.topology.interop.imported_topology import NotCarried
from watershed.topology.model import Topology


@dataclass(frozen=True, slots=True)
class ExportedTopology:
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
class _ExportFormat:
    """A format to write; `module` has `write(topology) -> Exported`."""

    name: str
    what: str
    module: str

    @property
    def write(self) -> Callable[[Topology], ExportedTopology]:
        function: Callable[[Topology], ExportedTopology] = importlib.import_module(self.module).write
        return function


EXPORT_FORMATS: tuple[_ExportFormat, ...] = (
    _ExportFormat("mm2", "MirrorMaker 2 properties", "watershed.topology.interop.mm2_export"),
    _ExportFormat(
        "strimzi",
        "Strimzi KafkaMirrorMaker2 resources (v1), one for each target",
        "watershed.topology.interop.strimzi_export",
    ),
    _ExportFormat(
        "cluster-linking", "properties of cluster links, one for each flow", "watershed.topology.interop.linking_export"
    ),
)


def export_topology(topology: Topology, name: str) -> ExportedTopology:
    """Raises KeyError for a format that is not in TARGETS."""
    target = next((each for each in EXPORT_FORMATS if each.name == name), None)
    if target is None:
        raise KeyError(f"no format {name}; there are {', '.join(each.name for each in EXPORT_FORMATS)}")
    written = target.write(topology)
    left = (
        NotCarried(f"external flow {each.id}", "another tool makes it; it stays where it is configured", each.declared)
        for each in topology.external_flows
    )
    return replace(written, not_carried=(*written.not_carried, *left))
