"""How a finding names many things, and where it points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watershed.topology.finding import FileSpan, Label

_SHOWN = 2
_NOTED = 4


def render_some_names(names: Sequence[str]) -> str:
    """`orders`, `payments` and 398 more."""
    if len(names) <= _SHOWN + 1:
        head, last = names[:-1], names[-1]
        return f"{', '.join(f'`{name}`' for name in head)} and `{last}`" if head else f"`{last}`"
    return f"{', '.join(f'`{name}`' for name in names[:_SHOWN])} and {len(names) - _SHOWN} more"


def build_labels(*places: tuple[FileSpan | None, str]) -> tuple[Label, ...]:
    """One label a span, in this order; the first word at a span stays. What is not declared anywhere has no span."""
    found: dict[FileSpan, str] = {}
    for span, text in places:
        if span is not None:
            found.setdefault(span, text)
    return tuple(Label(span, text) for span, text in found.items())


def render_plural(count: int, one: str, many: str = "") -> str:
    """`1 broker`, `3 brokers`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def sort_unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted, each once."""
    return tuple(sorted(set(names)))


def render_further_groups(groups: Iterable[tuple[Sequence[str], str]]) -> tuple[str, ...]:
    """One note for each further group of names with the same fault: (names, text). After `_NOTED` notes the rest is
    only counted."""
    lines = tuple(f"{render_some_names(names)}: {what}" for names, what in groups)
    return lines if len(lines) <= _NOTED else (*lines[:_NOTED], f"and {len(lines) - _NOTED} more such groups")
