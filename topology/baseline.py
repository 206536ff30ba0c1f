"""A baseline: the findings of an earlier report, so that an old estate can begin with what is new."""

from __future__ import annotations

import json
from pathlib import Path

from watershed.topology.errors import UnreadableTopology
from watershed.topology.loader import read_text_file
from watershed.topology.shell_command import quote_shell_argument


def read_baseline(path: Path) -> frozenset[str]:
    """Fingerprints of a report written by `topology lint --format json`. Raises UnreadableTopology."""
    try:
        report = json.loads(read_text_file(path))
        rows = [*report["findings"], *report.get("known", ())]
        return frozenset(str(row["fingerprint"]) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        message = (
            f"{path}: not a report; write one with `topology lint --format json PATH > "
            f"{quote_shell_argument(path.name)}`"
        )
        raise UnreadableTopology(message) from None
