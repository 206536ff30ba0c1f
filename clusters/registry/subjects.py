"""Names of subjects: `<topic>-key` and `<topic>-value` (TopicNameStrategy), in a context `:.name:` or in none."""

from __future__ import annotations

from typing import Literal, NamedTuple

Side = Literal["key", "value"]
SIDES: tuple[Side, Side] = ("key", "value")


class Subject(NamedTuple):
    """context: `:.name:`, or empty. topic and side are None where the name has neither ending."""

    context: str
    name: str
    topic: str | None
    side: Side | None

    def renamed(self, topic: str) -> str:
        """The same subject of another topic."""
        return f"{self.context}{topic}-{self.side}"


def parsed(subject: str) -> Subject:
    context, name = "", subject
    if subject.startswith(":.") and ":" in subject[2:]:
        end = subject.index(":", 2) + 1
        context, name = subject[:end], subject[end:]
    for side in SIDES:
        if name.endswith(f"-{side}") and len(name) > len(side) + 1:
            return Subject(context, name, name[: -len(side) - 1], side)
    return Subject(context, name, None, None)


def subject_of(topic: str, side: Side) -> str:
    """By TopicNameStrategy, in the default context."""
    return f"{topic}-{side}"
