"""What *should* be: topology files, their compiler and their linter. Needs PyYAML and networkx, nothing of ours.

>>> from pathlib import Path
>>> plan = compile_path(Path("topology/examples/active_standby.yaml"))
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watershed.topology.plan import Plan

__all__ = ["compile_path"]


def compile_path(path: Path) -> Plan:
    """The plan of one file. Raises `topology.errors.InvalidTopology` with all findings when it has errors, and
    `topology.errors.UnreadableTopology` when there is nothing to judge."""
    from watershed.topology.compile import compile_topology as compile_file

    return compile_file(Path(path))
