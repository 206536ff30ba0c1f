"""What a command prints, as a terminal may get it.

Names and messages come from brokers, certificates, files of other tools and YAML. Whatever in them a terminal would
obey, reorder or hide is written as JSON and YAML write it (`\\u001b`, `\\u202e`), so that a document keeps its values.
Colours of our own pass.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from watershed.topology.text_escaping import escape_json_controls

_KEPT = re.compile(
    r"(\x1b\[(?:0|[12]|(?:1;)?[39][0-7])m|[\t\r\n]+)"
)  # `click.style` and `topology.reports` write these


class VisibleStream:
    """A text stream that writes what is harmful in visible form; everything else is the stream's own.

    unfiltered: the stream itself, for what has to move the cursor (`status --watch`).
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """Writes the text in visible form; returns the length of the text as given."""
        self.unfiltered.write(make_visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """As `write`, line by line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def make_visible(text: str) -> str:
    """The text with what is harmful in visible form; colours, tabs and line ends stay. Raises TypeError for bytes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if at % 2 else escape_json_controls(each) for at, each in enumerate(_KEPT.split(text)))


@contextmanager
def filter_output() -> Iterator[None]:
    """Standard output and error are `VisibleStream`s meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = VisibleStream(sys.stdout), VisibleStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def get_unfiltered_output() -> TextIO:
    """Standard output itself."""
    stream: TextIO = getattr(sys.stdout, "unfiltered", sys.stdout)
    return stream
