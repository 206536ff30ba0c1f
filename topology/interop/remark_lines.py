"""Remarks of one kind as one line: the first in full, the others by their lines and by what they are about.

A foreign file repeats itself, and so would its remarks: forty settings of a Connect worker are one thing to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from watershed.topology.finding import FileSpan

# what differs between two remarks of one kind: quoted words, pairs and flows, clusters, variables, numbers. Each part
# begins at the start of a word and gives nothing back: linear time, also for one word of a whole file
_SUBJECT = re.compile(
    r"`[^`]*+`|(?<![^\s:])(?:[^\s:`>-]++|-(?!>)|(?<!-)>)++->[^\s:`,]++|(?<=cluster )[a-z0-9-]++"
    r"|(?<=variable )[A-Za-z0-9_]++|(?<![\w-])[a-z0-9]++(?:-(?!to-)[a-z0-9]*+)*+-to-[a-z0-9-]++"
    r"|\b[A-Z0-9]++(?:_[A-Z0-9]++)++\b|\b[0-9]++\b"
)
_MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class Remark:
    """`kind` is what the line begins with behind its place (`warning[NAM306] `), or empty; `help_` stands in brackets.
    ids: names that it is about. column: whether the place is shown with its column."""

    span: FileSpan
    kind: str
    text: str
    help_: str = ""
    ids: tuple[str, ...] = ()
    column: bool = True

    @property
    def subject(self) -> re.Pattern[str]:
        """Finds the words that it is about."""
        if not self.ids:
            return _SUBJECT
        named = "|".join(re.escape(each) for each in sorted(self.ids, key=len, reverse=True) if each)
        return re.compile(rf"{_SUBJECT.pattern}|(?<![\w.-])(?:{named})(?![\w-])")

    @property
    def pattern(self) -> tuple[str, str, str, str]:
        """Equal for remarks that differ only in what they are about."""
        subject = self.subject
        return (self.span.file, self.kind, subject.sub("…", self.text), subject.sub("…", self.help_))


def render_remark_lines(remarks: Iterable[Remark]) -> list[str]:
    """One line for each kind of remark, in the order in which the kinds first occur."""
    groups: dict[tuple[str, str, str, str], list[Remark]] = {}
    for each in remarks:
        groups.setdefault(each.pattern, []).append(each)
    return [_render_group(group) for group in groups.values()]


def _render_group(group: list[Remark]) -> str:
    first, others = group[0], group[1:]
    place = str(first.span) if first.column else f"{first.span.file}:{first.span.line}"
    line = f"{place}: {first.kind}{first.text}" + (f" (help: {first.help_})" if first.help_ else "")
    if not others:
        return line
    shown = dict.fromkeys(_render_other(first, other, index < _MAX_NAMED) for index, other in enumerate(others))
    return f"{line}; the same in line{'s' if len(shown) > 1 else ''} {', '.join(shown)}"


def _render_other(first: Remark, other: Remark, named: bool) -> str:
    """Its line, and which of its words are others than those of the first: of the text, then of the help."""
    if not named:
        return f"{other.span.line}"
    ours, theirs = first.subject, other.subject
    about = (
        _list_differences(ours.findall(first.text), theirs.findall(other.text)),
        _list_differences(ours.findall(first.help_), theirs.findall(other.help_)),
    )
    words = ": ".join(filter(None, about))
    return f"{other.span.line}" + (f" ({words})" if words else "")


def _list_differences(ours: list[str], theirs: list[str]) -> str:
    return ", ".join(dict.fromkeys(their for our, their in zip(ours, theirs, strict=True) if our != their))
