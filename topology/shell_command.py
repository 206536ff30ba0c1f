"""Command lines that people paste into a shell: built here only, from their parts.

Names in them come from topology files, brokers and other people's configurations. Every part is one argument, whatever
stands in it (decision 0053).
"""

from __future__ import annotations

import os
import shlex

from watershed.topology.text_escaping import escape_controls

_ESCAPED = {"\\": "\\\\", "'": "\\x27", "\0": "\\\\x00"}  # no argument can hold a NUL: it stands there as text


def quote_shell_argument(part: object) -> str:
    """One argument as a shell reads it: on one line, and without anything that a terminal would obey or hide.

    `$'…'` is bash's; it holds no bare quote, so that a shell without it gets a wrong name and never a command.
    """
    text = str(part)
    if isinstance(part, os.PathLike) and text.startswith("-"):
        text = f"./{text}"  # else it is read as an option
    if escape_controls(text) == text:
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def render_shell_command(*parts: object) -> str:
    """A command line of these arguments."""
    return " ".join(map(quote_shell_argument, parts))


def _escaped(letter: str) -> str:
    if letter in _ESCAPED or escape_controls(letter) == letter:
        return _ESCAPED.get(letter, letter)
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
