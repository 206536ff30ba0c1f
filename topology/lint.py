"""The linter's engine: every rule over one topology, suppressions applied, findings in file order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from watershed.topology.finding import SEVERITIES, Label, LintFinding, Problem, Severity
from watershed.topology.inventory import Inventory
from watershed.topology.lint_configuration import DEFAULT_LINT_CONFIGURATION, LintConfiguration
from watershed.topology.loader import LoadedTopology, load_topologies, load_topology
from watershed.topology.model import Topology
from watershed.topology.rule import Profile, Rule, RuleContext, build_finding
from watershed.topology.rules import RULES
from watershed.topology.selection_overlap import limit_overlap_work_for
from watershed.topology.suppression import Suppressions, parse_suppressions

_MAX_ERRORS = 5_000
_MAX_TOLD = 1_000  # findings of one rule; nobody reads more, and a hostile file has a million of them


@dataclass(frozen=True, slots=True)
class LintResult:
    """One topology's findings, in the order of the file. `suppressed` were silenced by a comment with a reason,
    `known` by a baseline; `skipped` are the rules that need an inventory (or live clusters) and were not asked.
    sources: file → text, for frames; profile: how much was asked. Of one rule at most _MAX_TOLD findings are kept and
    one that stands for the rest of them; `untold` counts those for which it stands, so that `count` is true."""

    file: str
    sources: Mapping[str, str]
    findings: tuple[LintFinding, ...]
    suppressed: tuple[LintFinding, ...]
    proofs: dict[str, Any]
    skipped: tuple[Rule, ...] = ()
    known: tuple[LintFinding, ...] = ()
    profile: Profile = "regular"
    untold: Mapping[Severity, int] = field(default_factory=dict)

    def count(self, severity: Severity) -> int:
        """Number of findings of this severity, those that are not listed included."""
        return sum(finding.severity == severity for finding in self.findings) + self.untold.get(severity, 0)

    @property
    def errors(self) -> int:
        """Number of errors, those that are not listed included."""
        return self.count("error")


def lint_path(
    path: Path, inventory: Inventory | None = None, configuration: LintConfiguration = DEFAULT_LINT_CONFIGURATION
) -> LintResult:
    """Raises UnreadableTopology."""
    return lint_topology(load_topology(path), inventory, configuration)


def lint_topologies(
    path: Path, inventory: Inventory | None = None, configuration: LintConfiguration = DEFAULT_LINT_CONFIGURATION
) -> list[LintResult]:
    """Every topology of a file or directory. Raises UnreadableTopology."""
    return [lint_topology(loaded, inventory, configuration) for loaded in load_topologies(path)]


def lint_topology(
    loaded: LoadedTopology,
    inventory: Inventory | None = None,
    configuration: LintConfiguration = DEFAULT_LINT_CONFIGURATION,
    baseline: frozenset[str] = frozenset(),
    others: Sequence[Topology] = (),
) -> LintResult:
    """Every rule that can be asked; none hides another, but after _MAX_ERRORS errors only those that nobody may silence
    are asked, and a finding says so. baseline: fingerprints of findings that are known. others: the
    other topologies of this run."""
    context = RuleContext(loaded, inventory, configuration.options, others)
    comments = {file: parse_suppressions(text, file) for file, text in loaded.sources.items()}
    kept: list[LintFinding] = []
    silenced: list[LintFinding] = []
    known: list[LintFinding] = []
    possible = [rule for rule in RULES if _can_be_asked(rule, inventory)]
    asked: list[Rule] = []
    errors = 0
    flows = len(loaded.topology.flows) if loaded.topology is not None else 0
    with limit_overlap_work_for(flows):
        for rule in possible:
            if errors > _MAX_ERRORS and rule.ignorable:
                continue
            asked.append(rule)
            for problem in rule.check(context):
                finding = configuration.judged(rule, build_finding(rule, problem))
                if finding is None:
                    continue
                if rule.ignorable and comments[finding.span.file].apply_to(finding):
                    silenced.append(finding)
                elif rule.ignorable and baseline and finding.fingerprint in baseline:
                    known.append(finding)
                else:
                    kept.append(finding)
                    errors += finding.severity == "error"
    for suppressions in comments.values():
        kept += _about_suppressions(suppressions, asked)
    if len(asked) < len(possible):
        kept.append(_unasked(kept, len(possible) - len(asked)))
    told, untold = _bounded(kept)
    graph = context.graph
    codes = {rule.code for rule in possible}
    return LintResult(
        file=loaded.file,
        sources=loaded.sources,
        findings=told,
        suppressed=tuple(_in_order(silenced)),
        proofs=graph.proofs() if graph is not None else {},
        skipped=tuple(rule for rule in RULES if rule.code not in codes),
        known=tuple(_in_order(known)),
        profile=configuration.profile,
        untold=untold,
    )


def _unasked(kept: list[LintFinding], count: int) -> LintFinding:
    first = min((finding for finding in kept if finding.severity == "error"), key=lambda finding: finding.order)
    problem = Problem(
        "GRF219",
        f"more than {_MAX_ERRORS} errors: {count} other rules were not asked, and nothing is proven",
        (Label(first.span, "the first of them"),),
        help="mend those first, or split the file",
    )
    return build_finding(next(rule for rule in RULES if rule.code == "GRF219"), problem)


def _bounded(findings: list[LintFinding]) -> tuple[tuple[LintFinding, ...], dict[Severity, int]]:
    """In order, each once; of a rule that finds more than _MAX_TOLD the last one says how many more there are, and has
    their worst severity."""
    ordered = _in_order(findings)
    counts = Counter(finding.rule for finding in ordered)
    if all(count <= _MAX_TOLD for count in counts.values()):
        return tuple(ordered), {}
    told: list[LintFinding] = []
    rest: dict[str, list[LintFinding]] = {}
    seen: Counter[str] = Counter()
    for finding in ordered:
        seen[finding.rule] += 1
        (told if seen[finding.rule] <= _MAX_TOLD else rest.setdefault(finding.rule, [])).append(finding)
    untold: Counter[Severity] = Counter(finding.severity for each in rest.values() for finding in each)
    for more in rest.values():
        last = replace(
            min(more, key=lambda finding: SEVERITIES.index(finding.severity)),
            message=f"{len(more)} more findings of this rule are counted and not listed",
            labels=(Label(more[0].span, "the first of them"),),
            path="",
            ids=(),
            notes=(),
            help=f"mend those {_MAX_TOLD} first, or split the file",
        )
        untold[last.severity] -= 1
        told.append(last)
    return tuple(_in_order(told)), dict(untold)


def _in_order(findings: list[LintFinding]) -> list[LintFinding]:
    """As they stand in the file, each once."""
    kept: list[LintFinding] = []
    for _, same in groupby(sorted(findings, key=lambda finding: finding.order), key=lambda finding: finding.order):
        several = list(same)
        kept += several if len(several) == 1 else dict.fromkeys(several)
    return kept


def _can_be_asked(rule: Rule, inventory: Inventory | None) -> bool:
    if rule.needs == "static":
        return True
    return inventory is not None and (rule.needs == "inventory" or inventory.live)


def _about_suppressions(suppressions: Suppressions, asked: list[Rule]) -> list[LintFinding]:
    """A comment for a rule that was not asked may well be needed when it is."""
    by_code = {rule.code: rule for rule in RULES}
    known = {word: rule for rule in RULES for word in (rule.code, rule.name)}
    codes = {rule.code for rule in asked}
    absent = {word for word, rule in known.items() if rule.code not in codes}
    return [build_finding(by_code[problem.code], problem) for problem in suppressions.problems(known, absent)]
