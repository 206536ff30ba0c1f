"""What a rule is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from topology.finding import Problem, Severity
from topology.load import Loaded
from topology.model import Topology

if TYPE_CHECKING:
    from topology.graph import TopicGraph


class Context:
    """One file under examination. `topology` is missing when the YAML does not parse; such rules see an empty one."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    @property
    def topology(self) -> Topology | None:
        return self.loaded.topology

    @cached_property
    def graph(self) -> TopicGraph | None:
        """Built once, when the first rule needs it (networkx is imported only then)."""
        if self.topology is None or not self.topology.flows:
            return None
        from topology.graph import build

        return build(self.topology)

    def problems(self, code: str) -> Iterator[Problem]:
        """What the loader said under this code."""
        return (problem for problem in self.loaded.problems if problem.code == code)


@dataclass(frozen=True, slots=True)
class Rule:
    """`manual` is the module's docstring. ignorable: a comment in the file may silence it."""

    code: str
    name: str
    severity: Severity
    manual: str
    check: Callable[[Context], Iterator[Problem]]
    needs: Literal["static", "inventory", "live"] = "static"
    ignorable: bool = True


def said_by_loader(code: str) -> Callable[[Context], Iterator[Problem]]:
    """The check of a rule whose problems only the loader can see."""

    def check(context: Context) -> Iterator[Problem]:
        return context.problems(code)

    return check
