"""Terraform's HCL as tokens with their places: names, numbers, strings, heredocs, signs and ends of lines.

Source: the HCL native syntax specification (hashicorp/hcl, hclsyntax/spec.md), of which this is a subset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from watershed.topology.finding import FileSpan

_NAME = re.compile(r"[^\W\d][\w-]*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_HEREDOC = re.compile(r"<<(-?)([^\W\d][\w-]*)[ \t]*\r?\n")
_SIGN = re.compile(r"\.\.\.|=>|==|!=|<=|>=|&&|\|\||[-+*/%!<>?:=.,()\[\]{}]")
_CLOSERS = {'"': '"', "{": "}"}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_MAX_TOKENS = 300_000
HclTokenKind = Literal["name", "number", "string", "sign", "newline", "end"]


class HclSyntaxError(ValueError):
    """What cannot be HCL, and where."""

    def __init__(self, message: str, span: FileSpan, help_: str = "") -> None:
        super().__init__(message)
        self.span = span
        self.help = help_


@dataclass(frozen=True, slots=True)
class HclToken:
    """`text` of a string is its value, with interpolations as they are written. `inner`: the whole string is one
    interpolation, and this is its expression."""

    kind: HclTokenKind
    text: str
    span: FileSpan
    interpolated: bool = False
    inner: str = ""


def tokenize_hcl(text: str, file: str) -> list[HclToken]:
    """All of them, ending with `end`. Raises HclSyntaxError."""
    return _Lexer(text, file).all()


class _Lexer:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.position = 0
        self.line = 1
        self.line_start = 0
        self.found: list[HclToken] = []

    def all(self) -> list[HclToken]:
        while self.position < len(self.text):
            if len(self.found) > _MAX_TOKENS:
                here = self._span(self.position, self.position + 1)
                raise HclSyntaxError(f"more than {_MAX_TOKENS} words and signs in one file", here, "split the file")
            self._one()
        self._add("end", "", self.position)
        return self.found

    def _one(self) -> None:
        text, begin = self.text, self.position
        char = text[begin]
        if char == "\n":
            self._add("newline", "", begin + 1)
            self._new_line()
        elif char in " \t\r\ufeff":
            self.position += 1
        elif char == "#" or text.startswith("//", begin):
            end = text.find("\n", begin)
            self.position = len(text) if end < 0 else end
        elif text.startswith("/*", begin):
            end = text.find("*/", begin + 2)
            if end < 0:
                raise HclSyntaxError("a comment `/*` without its `*/`", self._span(begin, begin + 2))
            self._skip_to(end + 2)
        elif char == '"':
            self._string()
        elif (match := _HEREDOC.match(text, begin)) is not None:
            self._heredoc(match)
        else:
            self._word(begin)

    def _word(self, begin: int) -> None:
        kinds: tuple[tuple[HclTokenKind, re.Pattern[str]], ...] = (
            ("name", _NAME),
            ("number", _NUMBER),
            ("sign", _SIGN),
        )
        for kind, pattern in kinds:
            if match := pattern.match(self.text, begin):
                self._add(kind, match[0], match.end())
                return
        raise HclSyntaxError("a character that Terraform does not read here", self._span(begin, begin + 1))

    def _string(self) -> None:
        begin = position = self.position
        position += 1
        out: list[str] = []
        interpolations: list[tuple[int, int]] = []
        while True:
            char = self.text[position : position + 1]
            if char == '"':
                break
            if char in ("", "\n"):
                raise HclSyntaxError("a string without its closing quote", self._span(begin, begin + 1))
            if char == "\\":
                piece, position = self._escape(position)
                out.append(piece)
            elif self.text.startswith(("$${", "%%{"), position):
                out.append(self.text[position + 1 : position + 3])
                position += 3
            elif self.text.startswith(("${", "%{"), position):
                end = self._interpolation(position)
                interpolations.append((position, end))
                out.append(self.text[position:end])
                position = end
            else:
                out.append(char)
                position += 1
        only = interpolations == [(begin + 1, position)] and self.text[begin + 1] == "$"
        inner = self.text[begin + 3 : position - 1].strip() if only else ""
        self._add("string", "".join(out), position + 1, bool(interpolations), inner)

    def _escape(self, position: int) -> tuple[str, int]:
        letter = self.text[position + 1 : position + 2]
        if letter in _ESCAPES and letter:
            return _ESCAPES[letter], position + 2
        match = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))").match(self.text, position)
        if match is None or int(match[1] or match[2], 16) > 0x10FFFF:
            raise HclSyntaxError("an escape that Terraform does not know", self._span(position, position + 2))
        return chr(int(match[1] or match[2], 16)).encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        ), match.end()

    def _interpolation(self, begin: int) -> int:
        """The position behind the `}` that closes it; strings inside may hold braces and further interpolations."""
        closers: list[str] = ["}"]
        position = begin + 2
        while position < len(self.text):
            char = self.text[position]
            if char == "\n" and '"' in closers:
                break
            if closers[-1] == '"' and (char == "\\" or self.text.startswith("${", position)):
                if char == "$":
                    closers.append("}")
                position += 1  # two characters that belong together
            elif char == closers[-1]:
                closers.pop()
            elif closers[-1] != '"' and char in _CLOSERS:
                closers.append(_CLOSERS[char])
            if not closers:
                return position + 1
            position += 1
        raise HclSyntaxError("an interpolation without its `}`", self._span(begin, begin + 2))

    def _heredoc(self, match: re.Match[str]) -> None:
        end = re.compile(rf"^[ \t]*{re.escape(match[2])}[ \t]*\r?$", re.MULTILINE).search(self.text, match.end())
        if end is None:
            raise HclSyntaxError(
                f"a heredoc without its closing line `{match[2]}`", self._span(match.start(), match.end())
            )
        lines = self.text[match.end() : end.start()].split("\n")[:-1]
        if match[1]:
            indent = min((len(each) - len(each.lstrip(" \t")) for each in lines if each.strip()), default=0)
            lines = [each[indent:] for each in lines]
        body = "".join(line.removesuffix("\r") + "\n" for line in lines)
        live = re.search(r"(?<!\$)\$\{|(?<!%)%\{", body) is not None
        self._add("string", body.replace("$${", "${").replace("%%{", "%{"), end.end(), live)

    def _add(self, kind: HclTokenKind, text: str, end: int, interpolated: bool = False, inner: str = "") -> None:
        begin_line, begin_column = self.line, self.position - self.line_start + 1
        begin = self.position
        self._skip_to(end) if kind not in ("newline", "end") else None
        column = self.position - self.line_start + 1
        span = FileSpan(self.file, begin_line, begin_column, self.line, column if self.position > begin else column + 1)
        self.found.append(HclToken(kind, text, span, interpolated, inner))

    def _skip_to(self, end: int) -> None:
        for match in re.compile("\n").finditer(self.text, self.position, end):
            self.line += 1
            self.line_start = match.end()
        self.position = end

    def _new_line(self) -> None:
        self.position += 1
        self.line += 1
        self.line_start = self.position

    def _span(self, begin: int, end: int) -> FileSpan:
        """Of characters in the line that contains `begin`, which may lie behind the current one."""
        line = self.line + self.text.count("\n", self.position, begin)
        start = max(self.line_start, self.text.rfind("\n", 0, begin) + 1)
        return FileSpan(self.file, line, begin - start + 1, line, max(end, begin + 1) - start + 1)
