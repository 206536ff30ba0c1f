"""Why a text is no YAML, for the person who typed it: libyaml says what it did not find, which is rarely the mistake.

Nothing of the text is repeated here: it may be a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from watershed.topology.text_escaping import shorten_and_escape

_LOOK_BACK = 30  # lines above an error in which a quote may have been left open
# what looks like a blank, or like nothing, and is a letter to YAML
UNSEEN = {
    "\xa0": "a non-breaking space",
    "\xad": "a soft hyphen",
    "\u200b": "a zero-width space",
    "\u200c": "a zero-width non-joiner",
    "\u200d": "a zero-width joiner",
    "\u2060": "a word joiner",
    "\ufeff": "a byte order mark",
    "\u3000": "an ideographic space",
    "\u202f": "a narrow non-breaking space",
    **{chr(code): "a space of print" for code in range(0x2000, 0x200B)},
}
_UNSEEN = re.compile(f"[{''.join(UNSEEN)}]")
_THINGS = (
    ("block mapping", "the mapping"),
    ("flow mapping", "the `{`"),
    ("flow sequence", "the `[`"),
    ("block collection", "the list"),
    ("quoted scalar", "the quoted text"),
    ("block scalar", "the text"),
)


@dataclass(frozen=True, slots=True)
class YamlSyntaxHelp:
    """Line and column count from 1 and are not yet held to the text."""

    message: str
    help: str
    line: int
    column: int


def explain_yaml_error(error: Any, lines: list[str]) -> YamlSyntaxHelp:
    """What a yaml.YAMLError most likely means, and where the mistake is."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    line = min(line, len(lines))
    problem = str(getattr(error, "problem", None) or "") or str(error).partition("\n")[0]
    context, begin = str(getattr(error, "context", None) or ""), getattr(error, "context_mark", None) or mark
    first = (min(begin.line + 1, len(lines)), begin.column + 1) if begin else (line, column)
    return (
        _conflict(lines)
        or _unseen(lines, min(first[0], line) if "simple key" in context else line - 1, line)
        or _template(lines, line)
        or _known(problem, context, first, line, column, lines)
        or YamlSyntaxHelp(_raw(problem, context, first), "", line, column)
    )


def find_invisible_letter(text: str) -> str:
    """The name of the first invisible character, such as `a non-breaking space (U+00A0)`, or ""."""
    match = _UNSEEN.search(text)
    return f"{UNSEEN[match[0]]} (U+{ord(match[0]):04X})" if match else ""


def _known(
    problem: str, context: str, first: tuple[int, int], line: int, column: int, lines: list[str]
) -> YamlSyntaxHelp | None:
    here = lines[line - 1]
    if "tab character" in problem or here[:column].lstrip(" ").startswith("\t") or "\\t" in problem:
        return YamlSyntaxHelp("a tab stands where blanks belong", "indent with spaces, not tabs", line, column)
    if "could not find expected ':'" in problem:
        return _no_colon(lines, *first)
    if "end of stream" in problem and "quoted" in context:
        return _open_quote(*first)
    if "',' or" in problem or (
        ("expected key" in problem or "document start" in problem) and here[: column - 1].strip()
    ):
        quote = _quote_above(lines, line, first[0] if "',' or" in problem else line - _LOOK_BACK)
        if quote is not None:
            return _open_quote(*quote)
    if "',' or" in problem:
        return _open_bracket(problem, first, line, column)
    if "'-' indicator" in problem or ("expected key" in problem and not here[: column - 1].strip()):
        return _indented(lines, line, column, first, "list" if "'-'" in problem else "mapping")
    if "mapping values are not allowed" in problem:
        if re.search(r":\s", here[: column - 1]):
            return YamlSyntaxHelp(_raw(problem, "", first), "quote the text that holds `: `", line, column)
        found = _indented(lines, line, len(here) - len(here.lstrip(" ")) + 1, first, "mapping")
        return YamlSyntaxHelp(found.message, found.help, line, found.column)
    return _letters(problem, context, first, line, column, lines)


def _letters(
    problem: str, context: str, first: tuple[int, int], line: int, column: int, lines: list[str]
) -> YamlSyntaxHelp | None:
    """Mistakes of one letter."""
    letter = lines[line - 1][column - 1 : column]
    if "cannot start any token" in problem:
        return YamlSyntaxHelp(
            f"a value cannot begin with `{shorten_and_escape(letter)}`",
            "if the text is meant, put it in quotes",
            line,
            column,
        )
    if "unknown escape" in problem:
        help_ = "write `\\\\` for one backslash, or use single quotes, in which a backslash is itself"
        return YamlSyntaxHelp(
            "inside double quotes a backslash begins an escape, and this is none", help_, line, column
        )
    if "alias" in context:
        return YamlSyntaxHelp("a plain `*` begins an alias", 'for a glob, write `{glob: "*"}`', *first)
    if "expected key" in problem:
        help_ = "put the whole text in quotes, or delete what is too much (a bracket, a quote)"
        return YamlSyntaxHelp("something follows a value that has ended", help_, line, column)
    if "node content" in problem:
        return YamlSyntaxHelp(
            "a value is missing before this", "write it, or delete what is too much (a comma, a bracket)", line, column
        )
    if "document start" in problem:
        return YamlSyntaxHelp(
            "this belongs to nothing above it", "check the brackets and the indentation above", line, column
        )
    return None


def _conflict(lines: list[str]) -> YamlSyntaxHelp | None:
    for number, text in enumerate(lines, 1):
        if text.startswith(("<<<<<<< ", ">>>>>>> ")):
            return YamlSyntaxHelp(
                "a merge conflict is left in the file", "decide for one side and delete the three marks", number, 1
            )
    return None


def _unseen(lines: list[str], low: int, high: int) -> YamlSyntaxHelp | None:
    for number in range(high, max(low, 1) - 1, -1):
        bare = re.sub(r"\"[^\"]*\"|'[^']*'", lambda quoted: " " * len(quoted[0]), lines[number - 1])
        match = _UNSEEN.search(bare.partition(" #")[0])
        if match:
            help_ = "write blanks instead; a text pasted from a web page or a chat often holds such letters"
            return YamlSyntaxHelp(
                f"{find_invisible_letter(match[0])}, which cannot be seen, stands in the line",
                help_,
                number,
                match.start() + 1,
            )
    return None


def _template(lines: list[str], line: int) -> YamlSyntaxHelp | None:
    for number in range(line, max(0, line - 2), -1):
        column = min((at for at in map(lines[number - 1].find, ("{{", "{%")) if at >= 0), default=-1)
        if column >= 0:
            help_ = "run the tool that fills it in first (`helm template`, Jinja), and lint what it writes"
            return YamlSyntaxHelp("a template's mark; the file must be YAML as it stands", help_, number, column + 1)
    return None


def _no_colon(lines: list[str], line: int, column: int) -> YamlSyntaxHelp:
    rest = lines[line - 1][column - 1 :]
    match = re.match(r"[A-Za-z_][\w-]*:(?=\S)", rest)
    if match:
        help_ = f"write `{shorten_and_escape(match[0])} …`"
        return YamlSyntaxHelp("a blank is missing after the `:`", help_, line, column + match.end() - 1)
    if re.match(r"-\S", rest):
        return YamlSyntaxHelp("a blank is missing after the `-`", "write `- ` before each entry", line, column)
    if rest.startswith(('"', "'")):
        return YamlSyntaxHelp(
            "a quoted text stands where a key belongs", "close the quote, or write `key: …`", line, column
        )
    return YamlSyntaxHelp(
        "a key without `:`", "write `key: value`, or `key:` above what is indented below it", line, column
    )


def _open_quote(line: int, column: int) -> YamlSyntaxHelp:
    return YamlSyntaxHelp("the quote that opens here is not closed", "close it in this line", line, column)


def _open_bracket(problem: str, first: tuple[int, int], line: int, column: int) -> YamlSyntaxHelp:
    opening, closing = ("[", "]") if "]" in problem else ("{", "}")
    if first[0] == line:
        help_ = f"the `{opening}` opens in column {first[1]}; separate its entries by `,` and close it with `{closing}`"
        return YamlSyntaxHelp(f"expected `,` or `{closing}`", help_, line, column)
    message = f"the `{opening}` that opens here is not closed; line {line} does not continue it"
    return YamlSyntaxHelp(message, f"close it with `{closing}`, and separate its entries by `,`", *first)


def _indented(lines: list[str], line: int, column: int, first: tuple[int, int], kind: str) -> YamlSyntaxHelp:
    """A line that begins where nothing above begins."""
    here = lines[line - 1][column - 1 :]
    if re.match(r"-[^\s-]", here):
        return YamlSyntaxHelp("a blank is missing after the `-`", "write `- ` before each entry", line, column)
    open_ = _columns(lines, line)
    near = sorted(
        {max((at for at in open_ if at < column), default=0), min((at for at in open_ if at > column), default=0)}
    )
    same = column in open_
    places = [f"{at - 1} {'blank' if at == 2 else 'blanks'} (as in line {open_[at]})" for at in near if at]
    where = "" if first == (line, column) else f" of the {kind} that begins in line {first[0]}"
    if same:
        help_ = f"a {kind} cannot go on with this; write " + ("`- ` before it" if kind == "list" else "`key: value`")
        return YamlSyntaxHelp(
            f"this line does not fit the entries{where}", f"{help_}, or indent it as what it belongs to", line, column
        )
    said = column - 1
    message = f"the indentation of {said} {'blank' if said == 1 else 'blanks'} fits no line above; an entry{where}?"
    return YamlSyntaxHelp(
        message, f"indent it by {' or '.join(places)}" if places else "do not indent it", line, column
    )


def _columns(lines: list[str], line: int) -> dict[int, int]:
    """The columns in which something that is still open above `line` begins → the last line that begins there."""
    found: dict[int, int] = {}
    for number, text in enumerate(lines[: line - 1], 1):
        bare = text.lstrip(" ")
        if not bare or bare.startswith("#"):
            continue
        at = len(text) - len(bare) + 1
        for deeper in [each for each in found if each > at]:
            del found[deeper]
        found[at] = number
        if bare.startswith("- "):
            found[at + len(bare) - len(bare[1:].lstrip(" "))] = number
    return found


def _quote_above(lines: list[str], line: int, low: int) -> tuple[int, int] | None:
    for number in range(line, max(low, 1) - 1, -1):
        column = _left_open(lines[number - 1])
        if column and (number < line or low == line):
            return number, column
    return None


def _left_open(text: str) -> int:
    """The column of a quote that begins a text of this line and does not end in it, or 0."""
    at, before = 0, ":"
    while at < len(text):
        letter = text[at]
        if letter in "\"'" and before in ":[{,-":
            end = at + 1
            while end < len(text) and text[end] != letter:
                end += 2 if letter == '"' and text[end] == "\\" else 1
            if end >= len(text):
                return at + 1
            at, before = end, "x"
        elif letter == "#" and text[at - 1 : at] in ("", " "):
            return 0
        elif letter != " ":
            before = letter
        at += 1
    return 0


def _raw(problem: str, context: str, first: tuple[int, int]) -> str:
    thing = next((name for word, name in _THINGS if word in context), "")
    return shorten_and_escape(problem, 200) + (
        f", while reading {thing} that begins in line {first[0]}" if thing else ""
    )
