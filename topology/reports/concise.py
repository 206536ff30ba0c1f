"""One line a finding: `file:line:column: severity[CODE] message`."""

from __future__ import annotations

from topology.lint import Result


def concise(result: Result) -> str:
    return "\n".join(
        f"{finding.span}: {finding.severity}[{finding.rule}] {finding.message}" for finding in result.findings
    )
