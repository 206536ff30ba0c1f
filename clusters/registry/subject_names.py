"""Names of subjects: `<topic>-key` and `<topic>-value` (TopicNameStrategy), in a context `:.name:` or in none."""

from __future__ import annotations

from typing import Literal, NamedTuple

SubjectSide = Literal["key", "value"]
SUBJECT_SIDES: tuple[SubjectSide, SubjectSide] = ("key", "value")


class SubjectName(NamedTuple):
    """context: `:.name:`, or empty. topic and side are None where the name has neither ending."""

    context: str
    name: str
    topic: str | None
    side: SubjectSide | None

    def renamed(self, topic: str) -> str:
        """The same subject of another topic."""
        return f"{self.context}{topic}-{self.side}"


def parse_subject(subject: str) -> SubjectName:
    """Splits a subject into context (`:.name:`), topic and side; topic and side are None for a name of another
    strategy."""
    context, name = "", subject
    if subject.startswith(":.") and ":" in subject[2:]:
        end = subject.index(":", 2) + 1
        context, name = subject[:end], subject[end:]
    for side in SUBJECT_SIDES:
        if name.endswith(f"-{side}") and len(name) > len(side) + 1:
            return SubjectName(context, name, name[: -len(side) - 1], side)
    return SubjectName(context, name, None, None)


def build_subject(topic: str, side: SubjectSide) -> str:
    """By TopicNameStrategy, in the default context."""
    return f"{topic}-{side}"
