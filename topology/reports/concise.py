"""One line a finding: `file:line:column: severity[CODE] message`."""

from __future__ import annotations

from collections.abc import Iterable

from topology.lint import Result
from topology.quoting import visible


def concise(results: Iterable[Result]) -> str:
    return "\n".join(
        visible(f"{finding.span}: {finding.severity}[{finding.rule}] {finding.message}")
        for result in results
        for finding in result.findings
    )
