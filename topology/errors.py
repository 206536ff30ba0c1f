"""Everything that stops the work on a topology file or a plan, as one tree.

::

    TopologyError                  exit_code 2: wrong usage or unreadable input
    ├── UnreadableTopology         no such file, a directory without topology files, not text, not a topology
    ├── InvalidTopology            exit_code 1: the file was read and has errors (`findings`, all of them)
    ├── UnreadablePlan             a plan document of another schema, damaged, or not a plan
    ├── UnknownKeys                part of a document that a newer version wrote (also a ValueError)
    ├── UnreadableInventory        an inventory of another schema, damaged, or not an inventory
    ├── IncompleteInventory        an inventory that lacks a cluster which is needed
    ├── NotInPlan                  a cluster or flow that the plan does not have (also a KeyError)
    └── BadSelector                a glob or regex outside the language (also a ValueError)

Problems *in* a topology are data (`topology.finding.LintFinding`), not exceptions. `str()` of every class is a complete
message for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watershed.topology.finding import LintFinding


class TopologyError(Exception):
    """Root of the tree."""

    exit_code = 2


class UnreadableTopology(TopologyError):
    """Nothing that could be judged: the message names the path and what was expected there."""


class InvalidTopology(TopologyError):
    """`findings` holds every finding of the file, errors and others, in file order; str() is the concise report."""

    exit_code = 1

    def __init__(self, report: str, findings: tuple[LintFinding, ...]) -> None:
        super().__init__(report)
        self.report = report
        self.findings = findings

    def __reduce__(self) -> tuple[type[InvalidTopology], tuple[str, tuple[LintFinding, ...]]]:
        return (InvalidTopology, (self.report, self.findings))


class UnreadablePlan(TopologyError):
    """A plan document that cannot be used."""


class UnknownKeys(TopologyError, ValueError):
    """What this version does not know stands where nothing may be passed over: a newer version wrote it."""


class UnreadableInventory(TopologyError):
    """An inventory document that cannot be used; the message names the path of what is wrong in it."""


class IncompleteInventory(TopologyError):
    """An inventory that lacks a cluster; the message says which one, and how to scan it."""


class NotInPlan(TopologyError, KeyError):
    """A cluster alias or flow id that the plan does not have; the message lists those it has."""

    def __str__(self) -> str:
        return str(self.args[0])


class BadSelector(TopologyError, ValueError):
    """A pattern that is not in the language; the message says which part and what to write instead."""
