"""A reader for Terraform files: blocks, attributes and the values that can be known without running Terraform.

Strings, heredocs, numbers, booleans, lists, maps, references and function calls become values with their places; an
interpolation stays text. Any other expression (operators, conditions, `for`, splats) becomes a value of the kind
`unknown`: it is passed over as a whole and never guessed. See docs/decisions/0011-terraform-reader.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.interop.hcl_tokens import HclSyntaxError, HclToken, tokenize_hcl

_MAX_DEPTH = 64
_MAX_PROBLEMS = 50
_TRAVERSAL = re.compile(r"[^\W\d][\w-]*(?:\.[\w-]+|\[(?:\d+|\"[^\"\\$%]*\")\])*")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class HclValue:
    """text: the string, the number as written, `true`, the reference `data.x.y.id`, or the name of the function.
    items: of a list, or the arguments of a call. entries: of a map, keys as text (None: a computed key)."""

    kind: Literal["string", "number", "boolean", "null", "reference", "list", "map", "call", "unknown"]
    span: FileSpan
    text: str = ""
    interpolated: bool = False
    items: tuple[HclValue, ...] = ()
    entries: tuple[tuple[str | None, FileSpan, HclValue], ...] = ()

    @property
    def literal(self) -> str | None:
        """The text of a string, number or boolean that is known as it stands."""
        known = self.kind in ("string", "number", "boolean") and not self.interpolated
        return self.text if known else None


@dataclass(frozen=True, slots=True)
class _HclAttribute:
    name: str
    key: FileSpan
    value: HclValue


@dataclass(frozen=True, slots=True)
class HclBlock:
    """`resource "confluent_cluster_link" "main" { … }`: type, labels and what is inside."""

    type: str
    labels: tuple[str, ...]
    span: FileSpan
    attributes: dict[str, _HclAttribute] = field(default_factory=dict)
    blocks: list[HclBlock] = field(default_factory=list)

    def value(self, name: str) -> HclValue | None:
        """The value of an attribute; None if the block does not set it."""
        found = self.attributes.get(name)
        return found.value if found is not None else None

    def block(self, type_: str) -> HclBlock | None:
        """The first inner block of this type, or None."""
        return next((each for each in self.blocks if each.type == type_), None)

    def all(self, type_: str) -> Iterator[HclBlock]:
        """All inner blocks of this type, in file order."""
        return (each for each in self.blocks if each.type == type_)


def parse_hcl(text: str, file: str) -> tuple[HclBlock, list[Problem]]:
    """The file as one block without a type, and what is wrong with it (SYN001, SYN002). What could be read is there
    even then."""
    root = HclBlock("", (), FileSpan(file, 1, 1, 1, 1))
    try:
        found = tokenize_hcl(text, file)
    except HclSyntaxError as error:
        return root, [Problem("SYN001", str(error), (Label(error.span),), help=error.help)]
    reader = _Reader(found)
    reader.body(root, 0)
    return root, reader.problems


class _Reader:
    def __init__(self, found: list[HclToken]) -> None:
        self.tokens = found
        self.position = 0
        self.problems: list[Problem] = []

    def body(self, block: HclBlock, depth: int) -> None:
        """Until the closing brace, which is taken, or the end."""
        while len(self.problems) < _MAX_PROBLEMS:
            token = self._next()
            if token.kind == "newline":
                continue
            if token.kind == "end":
                if depth:
                    head = f"`{block.type}`" if block.type else "a block"
                    self._say(f"{head} is never closed", block.span, "put its `}` at the end")
                return
            if token.text == "}" and token.kind == "sign":
                if depth:
                    return
                self._say("`}` without its `{`", token.span)
                continue
            try:
                self._statement(token, block, depth)
            except HclSyntaxError as error:
                self._say(str(error), error.span, error.help)
                self._skip(("\n",))

    def _statement(self, token: HclToken, block: HclBlock, depth: int) -> None:
        if token.kind not in ("name", "string"):
            raise HclSyntaxError("expected an attribute `name = value` or a block", token.span)
        if self._is("="):
            self._next()
            attribute = _HclAttribute(token.text, token.span, self._expression(depth + 1, lines=True))
            if token.text in block.attributes:
                places = (Label(token.span), Label(block.attributes[token.text].key, "first here"))
                self.problems.append(Problem("SYN002", f"`{token.text}` is said twice; the first one counts", places))
            block.attributes.setdefault(token.text, attribute)
            return
        labels: list[str] = []
        while self._peek().kind in ("name", "string"):
            labels.append(self._next().text)
        if not self._is("{"):
            raise HclSyntaxError(f"`{token.text}`: expected `=` or `{{`", self._peek().span)
        self._next()
        if depth >= _MAX_DEPTH:
            raise HclSyntaxError(f"blocks nested deeper than {_MAX_DEPTH} levels", token.span)
        inner = HclBlock(token.text, tuple(labels), token.span)
        block.blocks.append(inner)
        self.body(inner, depth + 1)

    def _expression(self, depth: int, *, lines: bool) -> HclValue:
        """lines: the end of the line ends it. What follows a value and is no end makes the whole unknown."""
        if depth > _MAX_DEPTH:
            raise HclSyntaxError(f"values nested deeper than {_MAX_DEPTH} levels", self._peek().span)
        if not lines:
            self._newlines()
        begin = self._peek()
        value = self._primary(depth)
        if not lines:
            self._newlines()
        if self._ends(lines):
            return value
        self._skip((",", "}", "]", ")", "\n") if lines else (",", "}", "]", ")"))
        return HclValue("unknown", begin.span)

    def _primary(self, depth: int) -> HclValue:
        token = self._peek()
        if token.kind in ("end", "newline") or (token.kind == "sign" and token.text in (",", "}", "]", ")")):
            raise HclSyntaxError("a value is missing here", token.span)
        self._next()
        if token.kind == "string":
            if token.inner and _TRAVERSAL.fullmatch(token.inner):
                return HclValue("reference", token.span, token.inner)
            return HclValue("string", token.span, token.text, token.interpolated)
        if token.kind == "number":
            return HclValue("number", token.span, token.text)
        if token.kind == "name":
            return self._named(token, depth)
        return self._signed(token, depth)

    def _signed(self, token: HclToken, depth: int) -> HclValue:
        """What begins with a sign: a negative number, parentheses, a list, a map."""
        if token.text == "-" and self._peek().kind == "number":
            return HclValue("number", token.span, "-" + self._next().text)
        if token.text == "(":
            value = self._expression(depth + 1, lines=False)
            self._close(")", token)
            return value
        if token.text in ("[", "{") and self._is_for():
            return self._passed_over(token)
        if token.text == "[":
            return HclValue("list", token.span, items=self._list("]", token, depth))
        if token.text == "{":
            return self._map(token, depth)
        return HclValue("unknown", token.span)

    def _named(self, token: HclToken, depth: int) -> HclValue:
        if token.text in ("true", "false"):
            return HclValue("boolean", token.span, token.text)
        if token.text == "null":
            return HclValue("null", token.span)
        if self._is("("):
            opening = self._next()
            return HclValue("call", token.span, token.text, items=self._list(")", opening, depth))
        parts = [token.text]
        while self._peek().kind == "sign" and self._peek().text in (".", "["):
            sign, after, closing = self._ahead(0), self._ahead(1), self._ahead(2)
            if sign.text == "." and after.kind in ("name", "number"):
                parts.append(f".{after.text}")
                self.position += 2
            elif sign.text == "[" and after.kind in ("string", "number") and closing.text == "]":
                if after.interpolated or closing.kind != "sign":
                    break
                parts.append(f'["{after.text}"]' if after.kind == "string" else f"[{after.text}]")
                self.position += 3
            else:
                break
        return HclValue("reference", token.span, "".join(parts))

    def _list(self, closer: str, opening: HclToken, depth: int) -> tuple[HclValue, ...]:
        items: list[HclValue] = []
        while True:
            self._newlines()
            if self._is(closer):
                self._next()
                return tuple(items)
            items.append(self._expression(depth + 1, lines=False))
            self._newlines()
            if self._is(","):
                self._next()
            elif not self._is(closer):
                raise HclSyntaxError(f"`{opening.text}` is never closed", opening.span, f"put its `{closer}`")

    def _map(self, opening: HclToken, depth: int) -> HclValue:
        entries: list[tuple[str | None, FileSpan, HclValue]] = []
        while True:
            self._newlines()
            if self._is("}"):
                self._next()
                return HclValue("map", opening.span, entries=tuple(entries))
            token = self._next()
            if token.kind == "end":
                raise HclSyntaxError("`{` is never closed", opening.span, "put its `}`")
            name: str | None = token.text
            if token.text == "(" and token.kind == "sign":
                key = self._expression(depth + 1, lines=False)
                self._close(")", token)
                name = key.literal
            elif token.kind not in ("name", "string", "number"):
                raise HclSyntaxError("expected a key of the map", token.span)
            elif token.interpolated:
                name = None
            if not (self._is("=") or self._is(":")):
                raise HclSyntaxError("expected `=` behind a key of the map", self._peek().span)
            self._next()
            entries.append((name, token.span, self._expression(depth + 1, lines=True)))
            if self._is(","):
                self._next()
            elif not self._is("}") and self._peek().kind != "newline":
                raise HclSyntaxError("expected the next line, or `}`", self._peek().span)

    def _is_for(self) -> bool:
        ahead = self.position
        while self.tokens[ahead].kind == "newline":
            ahead += 1
        following = self.tokens[min(ahead + 1, len(self.tokens) - 1)]
        return self.tokens[ahead].kind == "name" and self.tokens[ahead].text == "for" and following.kind == "name"

    def _passed_over(self, opening: HclToken) -> HclValue:
        """A `for` expression, whose opening bracket was taken."""
        self._skip((_CLOSERS[opening.text],))
        self._close(_CLOSERS[opening.text], opening)
        return HclValue("unknown", opening.span)

    def _skip(self, ends: tuple[str, ...]) -> None:
        """To before one of these signs (`\\n` for the end of the line) outside of brackets, or the end."""
        depth = 0
        while (token := self._peek()).kind != "end":
            sign = token.text if token.kind == "sign" else "\n" if token.kind == "newline" else ""
            if depth == 0 and sign in ends and sign:
                return
            if sign in _CLOSERS:
                depth += 1
            elif sign in _CLOSERS.values():
                if depth == 0:
                    return
                depth -= 1
            self._next()

    def _ends(self, lines: bool) -> bool:
        token = self._peek()
        if token.kind == "end" or (token.kind == "newline" and lines):
            return True
        return token.kind == "sign" and token.text in (",", "}", "]", ")")

    def _close(self, closer: str, opening: HclToken) -> None:
        self._newlines()
        if not self._is(closer):
            raise HclSyntaxError(f"`{opening.text}` is never closed", opening.span, f"put its `{closer}`")
        self._next()

    def _newlines(self) -> None:
        while self._peek().kind == "newline":
            self._next()

    def _is(self, sign: str) -> bool:
        token = self._peek()
        return token.kind == "sign" and token.text == sign

    def _peek(self) -> HclToken:
        return self.tokens[self.position]

    def _ahead(self, count: int) -> HclToken:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def _next(self) -> HclToken:
        token = self.tokens[self.position]
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def _say(self, message: str, span: FileSpan, help_: str = "") -> None:
        self.problems.append(Problem("SYN001", message, (Label(span),), help=help_))
