"""MirrorMaker's lists of topics and groups (Java regexes between commas) as selectors, and selectors as such lists.

What is exactly a name becomes a literal, what is exactly a glob a glob; everything else stays a regex. A name with dots
that nobody escaped is taken for the name; strictly it is a regex in which each dot is any character (NAM306).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from watershed.topology.errors import BadSelector
from watershed.topology.selectors import Selector

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PART = re.compile(
    r"\\(?P<escaped>[^a-zA-Z0-9])|\[\\?(?P<one>[._-])\]|(?P<star>\.\*)|(?P<any>\.)|(?P<name>[a-zA-Z0-9_-])"
)
_AHEAD = re.compile(r"\^?\(\?!(?P<not>[^()]*|[^()]*\([^()]*\)[^()]*)\)(?P<rest>.*)")
_QUOTED = re.compile(r"\\Q(.*?)\\E")
_ANY_CHARACTER = "[a-zA-Z0-9._-]"
_Trap = Literal["", "loose dots", "wide dots"]


@dataclass(frozen=True, slots=True)
class TopicListEntry:
    """One entry of a list. `selector` is None when it cannot be said, and then `why`. `excluded` comes with a negative
    look-ahead. trap: `loose dots`: taken for a name; `wide dots`: kept as a regex whose dots match any character."""

    text: str
    selector: Selector | None
    why: str = ""
    trap: _Trap = ""
    excluded: Selector | None = None


def parse_topic_list(text: str) -> tuple[TopicListEntry, ...]:
    """The entries of `a, b.*`, in order, without empty ones."""
    return tuple(item for each in text.split(",") if each.strip() for item in _items(each.strip()))


def encode_topic_list(selectors: tuple[Selector, ...]) -> tuple[str, tuple[Selector, ...]]:
    """`(text of a list, those that no such list can hold)`."""
    texts = [(selector, encode_java_regex(selector)) for selector in sorted(set(selectors))]
    return ",".join(text for _, text in texts if text), tuple(selector for selector, text in texts if not text)


def encode_java_regex(selector: Selector) -> str | None:
    """The Java regex, without a comma; None when there is none. Reading it with `items` gives the same language."""
    if selector.kind == "literal":
        return selector.text.replace(".", r"\.")
    if selector.kind == "glob":
        parts = {"*": ".*", "?": _ANY_CHARACTER, ".": r"\."}
        return "".join(parts.get(char, char) for char in re.sub(r"\*+", "*", selector.text))
    text = _without_commas(selector.text)
    if text is None or not text.strip():
        return None
    return f"(?:{text})" if any(each.trap == "loose dots" for each in _items(text)) else text


def _items(text: str) -> tuple[TopicListEntry, ...]:
    """`a|b.*` is two entries when both are plain."""
    parts = text.split("|")
    if len(parts) > 1 and all(_simple(part) is not None for part in parts):
        return tuple(_item(part) for part in parts)
    return (_item(text),)


def _item(text: str) -> TopicListEntry:
    simple = _simple(text)
    if simple is not None:
        loose = simple.kind == "literal" and _unescaped_dot(text)
        return TopicListEntry(text, simple, trap="loose dots" if loose else "")
    # after the last `\\E` no `\\Q` can be closed, so that part is not searched
    ends = text.rfind("\\E") + 2 if "\\E" in text else 0
    plain = _QUOTED.sub(lambda match: re.escape(match[1]), text[:ends]) + text[ends:]
    ahead = _AHEAD.fullmatch(plain)
    excluded = None
    if ahead is not None:
        body = ahead["not"]
        end = body.endswith("$") and not body.endswith("\\$")
        plain = ahead["rest"]
        banned = _item(f"(?:{body[:-1]})" if end else (f"{body}.*" if "|" not in body else f"(?:{body}).*"))
        if banned.selector is None or not plain or ("$" in body and "|" in body):
            return TopicListEntry(text, None, "a look-ahead that is no plain exclusion; write it as `exclude`")
        excluded = banned.selector
        rest = _item(plain)
        return TopicListEntry(text, rest.selector, rest.why, rest.trap, excluded)
    selector = Selector("regex", plain)
    try:
        selector.automaton()
    except BadSelector as error:
        return TopicListEntry(text, None, str(error).partition(": ")[2] or str(error))
    wide = re.search(r"(?<=[a-zA-Z0-9_])\.(?=[a-zA-Z0-9_]|\.[*+])", re.sub(r"\\.|\[[^\]]*\]", "x", plain))
    return TopicListEntry(text, selector, trap="wide dots" if wide else "")


def _simple(text: str) -> Selector | None:
    """A literal or a glob when the regex is exactly (or, with unescaped dots only, most likely) one."""
    body = text[1:] if text.startswith("^") else text
    if body.endswith("$") and not body.endswith("\\$"):
        body = body[:-1]
    out: list[str] = []
    dots = stars = position = 0
    while position < len(body):
        match = _PART.match(body, position)
        if match is None:
            return None
        if match["star"]:
            stars += 1
            out.append("*")
        elif match["any"]:
            dots += 1
            out.append(".")
        else:
            out.append(match["escaped"] or match["one"] or match["name"])
        position = match.end()
        if body[position : position + 1] in ("*", "+", "?", "{"):
            return None
    name = "".join(out)
    if stars:
        legal = _TOPIC.fullmatch(name.replace("*", "x"))
        return Selector("glob", re.sub(r"\*+", "*", name)) if legal and not dots else None
    return Selector("literal", name) if _TOPIC.fullmatch(name) else None


def _unescaped_dot(text: str) -> bool:
    return "." in re.sub(r"\\.|\[[^\]]*\]", "", text)


def _without_commas(text: str) -> str | None:
    """`x{2,4}` as `x{2}(?:x){0..}` without a comma: a comma would end the entry. None when the atom is not seen."""
    while (match := re.search(r"\{(\d+),(\d*)\}", text)) is not None:
        begin = _atom(text, match.start())
        if begin is None:
            return None
        atom, low, high = text[begin : match.start()], int(match[1]), match[2]
        more = f"{atom}*" if not high else f"(?:{atom})?" * (int(high) - low)
        text = f"{text[:begin]}(?:{atom}{{{low}}}{more}){text[match.end() :]}"
    text = re.sub(r"(\[[^\]]*),([^\]]*\])", r"\1\2", text)
    return None if "," in text else text


def _atom(text: str, end: int) -> int | None:
    """Where the atom begins that ends before `end`."""
    if end == 0:
        return None
    if text[end - 1] not in ")]" or text[end - 2 : end - 1] == "\\":
        return end - 2 if text[end - 2 : end - 1] == "\\" else end - 1
    if text[end - 1] == "]":
        begin = text.rfind("[", 0, end - 1)
        return begin if begin >= 0 else None
    depth = 0
    for position in range(end - 1, -1, -1):
        if text[position - 1 : position] != "\\":
            depth += {")": 1, "(": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return None
