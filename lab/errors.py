"""What can go wrong in the lab.

LabError                   one message for people: what is wrong, where, what to do
├── ToolMissing            java or mvn is missing or too old; says how to get it
├── BrokerFailed           a broker did not become ready; carries alias, broker id and its log
└── ApplicationFailed      a sample application did not start, stop or answer; carries name and its log
"""

from __future__ import annotations

from pathlib import Path


class LabError(Exception):
    """Root of the lab's errors."""


class ToolMissing(LabError):
    """A program that the lab needs is not there (or too old)."""

    def __init__(self, tool: str, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.tool = tool


class BrokerFailed(LabError):
    """A broker ended, or was not ready in time."""

    def __init__(self, alias: str, broker: int, problem: str, log: Path) -> None:
        super().__init__(f"broker {broker} of cluster {alias} {problem}; its log: {log}")
        self.alias = alias
        self.broker = broker
        self.log = log


class ApplicationFailed(LabError):
    """A sample application did not do what its control endpoint was told."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        super().__init__(f"application {name} {problem}; its log: {log}")
        self.name = name
        self.log = log
