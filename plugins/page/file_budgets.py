"""The budgets (`slo`) of topology files, for the page: they stand in the file only, not in the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from watershed.plugins.topology_dags import TopologyFile, read_topology_content
from watershed.topology.errors import UnreadableTopology
from watershed.topology.flow_budgets import FlowBudgets, read_budgets_at


@dataclass(frozen=True, slots=True)
class _ReadBudgets:
    """file: as the page listed it; digest: of the content that the budgets are from."""

    file: TopologyFile | None = None
    digest: bytes = b""
    budgets: Mapping[str, FlowBudgets] = field(default_factory=dict)


class FileBudgets:
    """What each file promises. A file is parsed again only when its content has changed: one of a hundred flows takes
    0.07 s of processor time (measured), and the page lists the files every few seconds."""

    def __init__(self) -> None:
        self._read: dict[str, _ReadBudgets] = {}

    def read(self, file: TopologyFile) -> Mapping[str, FlowBudgets]:
        """The budgets by flow. A file that does not compile any more keeps those that this process has read before, as
        it keeps its plan; none where it has read none. The page tells why a file does not compile."""
        known = self._read.get(file.name, _ReadBudgets())
        if known.file is file or file.problem:
            return known.budgets
        try:
            digest = hashlib.sha256(read_topology_content(file.path)).digest()
            budgets = known.budgets if digest == known.digest else read_budgets_at(file.path)
        except (OSError, UnreadableTopology):  # removed since the files were listed: the next list says so
            return known.budgets
        self._read[file.name] = _ReadBudgets(file, digest, budgets)
        return budgets
