"""`# lint: ignore[CODE] reason` on a line or on the line above: silences that rule there, and says why."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from watershed.topology.finding import FileSpan, Label, LintFinding, Problem
from watershed.topology.rule import Rule
from watershed.topology.spelling import suggest_word
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.yaml_tree import YAML_LOADER, split_yaml_lines

# bounded pieces: no line makes the search go back over more than a few letters
_COMMENT = re.compile(r"(?:^|\s)#\s{0,20}lint:\s{0,20}ignore\[([^\]\[#]{0,500})\]")
_MAX_WORDS = 20
_Place = tuple[int, int]  # line and column, from 1


@dataclass(slots=True)
class _Suppression:
    """One comment; `used` collects the words that silenced something."""

    span: FileSpan
    words: tuple[str, ...]
    reason: str
    alone: bool
    used: set[str] = field(default_factory=set)

    @property
    def lines(self) -> range:
        """The lines it speaks for: its own, and the next when it stands alone."""
        return range(self.span.line, self.span.line + (2 if self.alone else 1))


@dataclass(frozen=True, slots=True)
class Suppressions:
    """The `lint: ignore` comments of one file. by_line: line → comments that apply to it."""

    entries: tuple[_Suppression, ...]
    by_line: Mapping[int, tuple[_Suppression, ...]]

    def apply_to(self, finding: LintFinding) -> bool:
        """Marks the comments that silence this finding as used. Returns True if there is one with a reason."""
        hit = False
        for entry in self.by_line.get(finding.span.line, ()):
            if entry.reason:
                for word in {finding.rule, finding.name} & set(entry.words):
                    entry.used.add(word)
                    hit = True
        return hit

    def problems(self, rules: Mapping[str, Rule], absent: Collection[str] = ()) -> Iterator[Problem]:
        """SYN007 for a comment without a reason, SYN006 for a word that silenced nothing, unless its rule is `absent`
        from this run."""
        for entry in self.entries:
            if not entry.reason:
                yield Problem(
                    "SYN007",
                    "the comment gives no reason, so it silences nothing",
                    (Label(entry.span),),
                    help="write why after the bracket: `# lint: ignore[CODE] reason`",
                )
                continue
            for word in entry.words:
                if word not in entry.used and word not in absent:
                    yield Problem("SYN006", _why_unused(word, rules), (Label(entry.span),), help="remove it")


def parse_suppressions(text: str, file: str) -> Suppressions:
    """The `lint: ignore` comments of a file. Text inside quoted and block scalars is no comment."""
    entries = []
    found = [(number, line) for number, line in enumerate(split_yaml_lines(text), 1) if _COMMENT.search(line)]
    scalars = _find_scalars(text) if found else []
    for number, line in found:
        for match in _COMMENT.finditer(line):
            column = line.index("#", match.start()) + 1
            if _is_inside(scalars, number, column):
                continue
            words = tuple(sorted({word.strip() for word in match[1].split(",") if word.strip()}))
            span = FileSpan(file, number, column, number, len(line) + 1)
            reason = line[match.end() :].strip()
            entries.append(_Suppression(span, words[:_MAX_WORDS], reason, alone=not line[: column - 1].strip()))
            break  # the rest of the line is the comment
    by_line: dict[int, tuple[_Suppression, ...]] = {}
    for entry in entries:
        for number in entry.lines:
            by_line[number] = (*by_line.get(number, ()), entry)
    return Suppressions(tuple(entries), by_line)


def _find_scalars(text: str) -> list[tuple[_Place, _Place]]:
    """Where quoted and block scalars begin and end: in them a `#` begins no comment (YAML 1.2, 6.6). Behind the `|` or
    `>` of a block it does. Of a file that is no YAML, those in front of the fault."""
    found: list[tuple[_Place, _Place]] = []
    try:
        for token in yaml.scan(text, Loader=YAML_LOADER):
            if isinstance(token, yaml.ScalarToken) and not token.plain:
                begin, end = token.start_mark, token.end_mark
                start = (begin.line + 2, 1) if token.style in ("|", ">") else (begin.line + 1, begin.column + 1)
                found.append((start, (end.line + 1, end.column + 1)))
    except yaml.YAMLError:
        pass  # the loader says what is wrong, and where
    return found


def _is_inside(scalars: Sequence[tuple[_Place, _Place]], line: int, column: int) -> bool:
    at = bisect_right(scalars, (line, column), key=lambda scalar: scalar[0]) - 1
    return at >= 0 and (line, column) < scalars[at][1]


def _why_unused(word: str, rules: Mapping[str, Rule]) -> str:
    rule = rules.get(word)
    if rule is None:
        near = suggest_word(word, rules)
        return f"there is no rule {shorten_and_escape(word)}" + (f"; did you mean {near}?" if near else "")
    if not rule.ignorable:
        return f"{word} cannot be silenced by a comment"
    return f"{word} finds nothing here, so this comment silences nothing"
