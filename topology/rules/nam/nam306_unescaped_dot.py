"""NAM306 unescaped-dot: a `.` in a regex stands between parts of a name, where the character `.` is most likely meant.

Why: in a regex `.` is any character, so `eu.orders` takes `eu-orders` and `euXorders` as well, and nobody notices until
such a topic comes to be.

Source: own; topic names are full of dots, MirrorMaker 2 reads every topic list as regexes (apache/kafka
DefaultTopicFilter.java)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.nam.declared_regexes import DeclaredRegex, list_declared_regexes, split_regex
from watershed.topology.text_escaping import shorten_and_escape

_BEFORE = frozenset({"name", "class", "escape", "close", "repeat"})
_AFTER = frozenset({"name", "class", "escape", "open"})


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    for regex in list_declared_regexes(context.topology):
        if dots := find_unescaped_dots(regex.text):
            yield _problem(regex, dots)


def _problem(regex: DeclaredRegex, dots: list[int]) -> Problem:
    text = regex.text
    meant = "".join("\\." if index in set(dots) else char for index, char in enumerate(text))
    first = dots[0]
    return Problem(
        "NAM306",
        f"in the regex `{shorten_and_escape(text)}` the `.` at character {first + 1} is any character"
        + (f" ({len(dots) - 1} more like it)" if len(dots) > 1 else ""),
        (Label(regex.span),),
        path=regex.path,
        ids=(*regex.flows, text),
        help=f"write `{shorten_and_escape(meant, 200)}`; where any character is meant, `[a-zA-Z0-9._-]` says so",
    )


def find_unescaped_dots(regex: str) -> list[int]:
    """Where a `.` stands alone between two parts of a name: not repeated, and with no escaped dot beside it, which
    would show that its author knows the difference."""
    parts = list(split_regex(regex))
    dots = []
    for before, (start, kind, _), after in zip(parts, parts[1:], parts[2:], strict=False):
        beside = {before[2], after[2]}
        if kind == "dot" and before[1] in _BEFORE and after[1] in _AFTER and "\\." not in beside:
            dots.append(start)
    return dots


RULE = Rule("NAM306", "unescaped-dot", "warning", __doc__, check)
