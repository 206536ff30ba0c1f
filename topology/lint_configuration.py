"""`topology.lint.yaml`: a profile, severities and options, for a whole repository or for some of its paths.

::

    profile: strict                 # regular | strict | audit
    severities: {TPC405: error, SYC508: "off"}
    options: {wave_topics: 80, headroom: 20%}
    paths:
      - match: "edge/*"
        reason: single brokers on ships
        severities: {TPC405: "off", CLU109: "off"}

A rule that may not be silenced by a comment keeps its severity here, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import LintFinding, Problem, Severity
from watershed.topology.language import scalars
from watershed.topology.loader import read_topology_text
from watershed.topology.model import CheckedValue
from watershed.topology.problem_collector import ProblemCollector
from watershed.topology.rule import PROFILES, Profile, Rule
from watershed.topology.spelling import suggest_word
from watershed.topology.topology_files import LINT_CONFIGURATION_FILE
from watershed.topology.yaml_shapes import ListShape, MapShape, RecordShape, ShapeKey
from watershed.topology.yaml_tree import parse_yaml

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LintConfiguration:
    """severities: rule code → severity or `off`; paths: (glob on the file's path, severities) in their order, later
    ones win; options by name, converted (ms, bytes, fractions)."""

    profile: Profile = "regular"
    severities: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    paths: tuple[tuple[str, Mapping[str, str]], ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    def judged(self, rule: Rule, finding: LintFinding) -> LintFinding | None:
        """The finding with the severity that it has here; None when the rule is off."""
        said = self.severities.get(rule.code)
        for match, severities in self.paths:
            if rule.code in severities and _matches(finding.span.file, match):
                said = severities[rule.code]
        if said is None and PROFILES.index(rule.profile) > PROFILES.index(self.profile):
            said = "off" if rule.profile == "audit" else "info"
        if said is None or not rule.ignorable:
            return finding
        severity: Severity | None = {"error": "error", "warning": "warning", "info": "info"}.get(said)  # type: ignore[assignment]
        return None if severity is None else replace(finding, severity=severity)


DEFAULT_LINT_CONFIGURATION = LintConfiguration()


def read_nearest_configuration(path: Path) -> LintConfiguration:
    """The nearest `topology.lint.yaml` at or above a topology file, up to the folder that holds `.git`; without one the
    defaults. Raises UnreadableTopology."""
    here = path.absolute() if path.is_dir() else path.absolute().parent
    for folder in (here, *here.parents):
        if (folder / LINT_CONFIGURATION_FILE).is_file():
            return read_lint_configuration(folder / LINT_CONFIGURATION_FILE)
        if (folder / ".git").exists():
            break
    return DEFAULT_LINT_CONFIGURATION


def read_lint_configuration(path: Path) -> LintConfiguration:
    """Raises UnreadableTopology: every problem of the file, with its line."""
    text = read_topology_text(path)
    root, problems = parse_yaml(text, str(path))
    if root is None and not problems:
        return DEFAULT_LINT_CONFIGURATION
    if root is not None and root.kind != "map":
        raise UnreadableTopology(f"{path}: not a configuration; one has profile, severities, options, paths")
    reader = ProblemCollector()
    value = _shape().read(root, "", reader) if root is not None else None
    problems = [*problems, *reader.problems, *(_fixed(value) if value is not None else ())]
    if problems or value is None:
        raise UnreadableTopology("\n".join(f"{each.labels[0].span}: {each.message}{_help(each)}" for each in problems))
    options = value.at("options")
    return LintConfiguration(
        profile=value.get("profile", default="regular"),
        severities=_severities(value.at("severities")),
        paths=tuple((each.get("match"), _severities(each.at("severities"))) for each in value.list("paths")),
        options={name: each.data for name, each in options.fields.items()} if options is not None else _NOTHING,
    )


def _shape() -> RecordShape:
    from watershed.topology.rules import RULES

    by_word = {word: rule for rule in RULES for word in (rule.code, rule.name)}
    kinds = {
        "count": scalars.COUNT_SHAPE,
        "share": scalars.SHARE_SHAPE,
        "duration": scalars.DURATION_SHAPE,
        "size": scalars.SIZE_SHAPE,
        "rate": scalars.RATE_SHAPE,
    }

    def known(word: str) -> str:
        if word not in by_word:
            near = suggest_word(word, by_word)
            raise ValueError(f"no rule {word}" + (f"; did you mean {near}?" if near else "; see `topology rules`"))
        return word

    options = [each for rule in RULES for each in rule.options]
    severities = MapShape(scalars.build_enum_shape("error", "warning", "info", "off"), known)
    return RecordShape(
        {
            "profile": ShapeKey(scalars.build_enum_shape(*PROFILES), "How much is asked of a file.", "`regular`"),
            "severities": ShapeKey(severities, "Rule → severity, or `off`."),
            "options": ShapeKey(
                RecordShape({option.name: ShapeKey(kinds[option.kind], option.doc) for option in options}), "Numbers."
            ),
            "paths": ShapeKey(
                ListShape(
                    RecordShape(
                        {
                            "match": ShapeKey(scalars.TEXT_SHAPE, "A glob on the end of the file's path."),
                            "reason": ShapeKey(scalars.TEXT_SHAPE, "Why."),
                            "severities": ShapeKey(severities, "Rule → severity, or `off`."),
                        },
                        required=("match", "reason", "severities"),
                    )
                ),
                "Severities for some files.",
            ),
        }
    )


def _fixed(value: CheckedValue) -> Iterator[Problem]:
    """Rules whose severity nobody may change."""
    from watershed.topology.finding import Label
    from watershed.topology.rules import RULES

    fixed = {word: rule for rule in RULES if not rule.ignorable for word in (rule.code, rule.name)}
    for section in (value.at("severities"), *(each.at("severities") for each in value.list("paths"))):
        for word, said in (section.fields if section is not None else {}).items():
            if word in fixed:
                message = f"{word} keeps its severity: what it finds must not run"
                yield Problem("SYN011", message, (Label(said.key or said.span),), help="remove the line")


def _severities(value: CheckedValue | None) -> Mapping[str, str]:
    from watershed.topology.rules import RULES

    codes = {rule.name: rule.code for rule in RULES}
    return {codes.get(word, word): each.data for word, each in (value.fields if value is not None else {}).items()}


def _matches(file: str, match: str) -> bool:
    """A glob on the end of the path: `edge/*` matches `/repo/topologies/edge/a.yaml`."""
    return fnmatchcase(file, match) or fnmatchcase(file, f"*/{match}")


def _help(problem: Problem) -> str:
    return f"; {problem.help}" if problem.help else ""
