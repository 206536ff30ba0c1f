"""What a rule is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from watershed.topology.finding import LintFinding, Problem, Severity
from watershed.topology.inventory import Inventory
from watershed.topology.loader import LoadedTopology
from watershed.topology.model import Topology
from watershed.topology.text_escaping import escape_controls
from watershed.topology.topic_facts import TopologyFacts

if TYPE_CHECKING:
    from watershed.topology.topic_graph import TopicGraph

_Needs = Literal["static", "inventory", "live"]
Profile = Literal["regular", "strict", "audit"]
PROFILES: tuple[Profile, ...] = ("regular", "strict", "audit")


@dataclass(frozen=True, slots=True)
class RuleOption:
    """A number that `topology.lint.yaml` may set for a rule, under a name that means the same in every rule. kind says
    how it is written: `count`, `share` (`30%`, here 0.3), `duration` (ms), `size` (bytes), `rate` (bytes a second)."""

    name: str
    kind: Literal["count", "share", "duration", "size", "rate"]
    default: Any
    doc: str


class RuleContext:
    """One topology under examination. `topology` is missing when the YAML does not parse; most rules then see nothing.

    inventory is None without one; rules with `needs="inventory"` or `"live"` are only asked when it is there. others
    are the topologies of the same run."""

    def __init__(
        self,
        loaded: LoadedTopology,
        inventory: Inventory | None = None,
        options: Mapping[str, Any] | None = None,
        others: Sequence[Topology] = (),
    ) -> None:
        self.loaded = loaded
        self.inventory = inventory
        self.others = others
        self.options = dict(options or {})
        self.kept: dict[Any, Any] = {}  # what several rules would work out again

    @property
    def topology(self) -> Topology | None:
        """The topology; None if the file has no meaning."""
        return self.loaded.topology

    @cached_property
    def graph(self) -> TopicGraph | None:
        """Built once, when the first rule needs it."""
        if self.topology is None or not self.topology.all_flows:
            return None
        from watershed.topology.topic_graph_builder import build_topic_graph

        return build_topic_graph(self.topology)

    @cached_property
    def facts(self) -> TopologyFacts:
        """What is known about topics; only for rules that saw a topology."""
        assert self.topology is not None, "asked without a topology"
        return TopologyFacts(self.topology, self.inventory)

    def option(self, option: RuleOption) -> Any:
        """Its value: from the configuration, or the default."""
        return self.options.get(option.name, option.default)

    def problems(self, code: str) -> Iterator[Problem]:
        """What the loader said under this code."""
        return (problem for problem in self.loaded.problems if problem.code == code)


@dataclass(frozen=True, slots=True)
class Rule:
    """`manual` is the module's docstring. needs: what it has to see beyond the file. ignorable: a comment, baseline or
    configuration may silence it. profile: from which profile on it has its severity; before that a `strict` rule only
    informs, and an `audit` rule says nothing."""

    code: str
    name: str
    severity: Severity
    manual: str
    check: Callable[[RuleContext], Iterator[Problem]]
    needs: _Needs = "static"
    ignorable: bool = True
    profile: Profile = "regular"
    options: tuple[RuleOption, ...] = ()


def build_loader_check(code: str) -> Callable[[RuleContext], Iterator[Problem]]:
    """The check of a rule whose problems only the loader can see."""

    def check(context: RuleContext) -> Iterator[Problem]:
        return context.problems(code)

    return check


def build_finding(rule: Rule, problem: Problem) -> LintFinding:
    """The problem with the name and severity of its rule. Texts are escaped: a rule may quote anything from a file."""
    return LintFinding(
        rule=rule.code,
        name=rule.name,
        severity=problem.severity or rule.severity,
        confidence=problem.confidence,
        message=escape_controls(problem.message),
        labels=problem.labels,
        path=problem.path,
        ids=problem.ids,
        help=escape_controls(problem.help),
        notes=tuple(map(escape_controls, problem.notes)),
    )
