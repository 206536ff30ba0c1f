"""Java properties with every key's place: separators `=`, `:` and space, comments `#` and `!`, continued lines and
escapes.

Source: the format as java.util.Properties.load documents it. A `#` behind a value is no comment there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watershed.topology.finding import FileSpan
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, is_setting_name

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
_BACKSLASHES = re.compile(r"\\+(\.)?")
_DROPPED = "\0"  # stands for backslashes before a dot
_ADDED = re.compile(r"(?<!\s)\s++#(?!\{).*$", re.DOTALL)
_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Line:
    """A logical line: its characters without leading blanks and continuations, each with (line, column) from 1."""

    text: str
    places: tuple[_Place, ...]


def parse_properties(text: str, file: str, notes: ImportNotes) -> list[ForeignSetting]:
    """All properties in the order of the file; of a key said twice the last is kept (as Java does) and SYN002 said.

    A comment behind a value is cut off, and said to be wrong (SYN011)."""
    found: dict[str, ForeignSetting] = {}
    for line in _logical(text):
        said = _property(line, file, notes)
        if said is None:
            continue
        if said.name in found:
            notes.add_problem(
                "SYN002",
                f"`{said.name}` is said again; this value counts, the one in line {found[said.name].key.line} does not",
                said.key,
                "keep one of the two",
            )
            del found[said.name]
        found[said.name] = said
    return list(found.values())


def escape_property(text: str, *, key: bool = False) -> str:
    """A key or a value as it is written in a properties file."""
    written = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if key:
        written = re.sub(r"([ =:#!])", r"\\\1", written)
    elif written.startswith(" "):
        written = "\\" + written
    return "".join(char if " " <= char <= "~" else _units(char) for char in written)


def _units(char: str) -> str:
    """One or two UTF-16 units, as Java has them."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[place] << 8 | data[place + 1]:04x}" for place in range(0, len(data), 2))


def _logical(text: str) -> Iterator[_Line]:
    chars: list[str] = []
    places: list[_Place] = []
    continued = False
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        begin = len(line) - len(line.lstrip(_BLANK))
        body = line[begin:]
        if not continued and (not body or body[0] in "#!"):
            continue
        slashes = len(body) - len(body.rstrip("\\"))
        continued = slashes % 2 == 1
        if continued:
            body = body[:-1]
        chars += body
        places += ((number, begin + column + 1) for column in range(len(body)))
        if not continued and chars:
            yield _Line("".join(chars), tuple(places))
            chars, places = [], []
    if chars:
        yield _Line("".join(chars), tuple(places))


def _property(line: _Line, file: str, notes: ImportNotes) -> ForeignSetting | None:
    end = 0
    while end < len(line.text) and line.text[end] not in "=:" + _BLANK:
        end += 2 if line.text[end] == "\\" else 1
    end = min(end, len(line.text))
    begin = end + len(line.text[end:]) - len(line.text[end:].lstrip(_BLANK))
    if line.text[begin : begin + 1] in ("=", ":"):
        begin += 1
        begin += len(line.text[begin:]) - len(line.text[begin:].lstrip(_BLANK))
    key_span = _span(file, line, 0, end)
    raw = line.text[begin:]
    kept = _ADDED.sub("", raw)
    span = _span(file, line, begin, begin + max(1, len(kept.rstrip())))
    try:
        name, value = _unescaped(line.text[:end]), _unescaped(kept.rstrip())
    except ValueError as error:
        notes.add_problem(
            "SYN001", f"{error}; Java does not load this file", span, "write `\\\\u` for a plain backslash"
        )
        return None
    if not is_setting_name(name):
        message = "the line begins with something that is no key"
        notes.add_problem("SYN011", message, key_span, "is there a `\\` missing at the end of the line above?")
        return None
    if kept != raw:
        notes.add_problem(
            "SYN011",
            f"`{name}`: a properties file has no comment behind a value; MirrorMaker takes the `#…` for a part of it",
            _span(file, line, begin + raw.index("#", len(kept)), len(line.text)),
            "put the comment on a line of its own; it was left out here",
        )
    return ForeignSetting(name, value, span, key_span, padded=kept == raw and kept != kept.rstrip())


def has_dropped_backslash(said: ForeignSetting, text: str, source: Sequence[str]) -> bool:
    """Whether the file writes a single backslash before a dot of `text`, which Java drops: `a\\.b` becomes `a.b`."""
    written = "\n".join(source[said.span.line - 1 : said.span.end_line])
    marked = _BACKSLASHES.sub(lambda run: f"{_DROPPED}." if run[1] else run[0], written)  # one pass: runs can be long
    found = re.search(re.escape(text).replace(r"\.", rf"{_DROPPED}?\."), marked)
    return found is not None and _DROPPED in found[0]


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        escape = text[position : position + 1]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits) is None:
                raise ValueError("`\\u` is not followed by four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _span(file: str, line: _Line, begin: int, end: int) -> FileSpan:
    """From one character to before another, or at the end of the line."""
    if begin >= len(line.places):
        number, column = line.places[-1]
        return FileSpan(file, number, column + 1, number, column + 2)
    first = line.places[begin]
    last = line.places[max(begin, min(end, len(line.places)) - 1)]
    return FileSpan(file, *first, last[0], last[1] + 1)
