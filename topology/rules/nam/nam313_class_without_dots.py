"""NAM313 class-without-dots: a regex repeats a class of letters that holds neither `.` nor `-`.

Why: most names of topics have dots or dashes in them. `orders[a-z]*` and `orders\\w*` take `orders` and `ordersEU`, and
leave out `orders.eu` and `orders-eu`, without a word: what is not selected is not copied, and nobody compares it.
A class of digits is left alone: it counts something.

Source: own; a topic's name has letters, digits, `.`, `_` and `-` (apache/kafka Topic.java)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.nam.declared_regexes import list_declared_regexes, split_regex
from watershed.topology.text_escaping import shorten_and_escape

_RANGES = ("a-z", "A-Z", "\\w")


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    for regex in list_declared_regexes(context.topology):
        classes = find_classes_without_dots(regex.text)
        if classes:
            shown = ", ".join(f"`{shorten_and_escape(each)}`" for each in classes)
            yield Problem(
                "NAM313",
                f"in the regex `{shorten_and_escape(regex.text)}` {shown} takes no `.` and no `-`: names with them are "
                "left out",
                (Label(regex.span),),
                path=regex.path,
                ids=(*regex.flows, regex.text),
                help="write `[a-zA-Z0-9._-]` where any character of a name is meant",
            )


def find_classes_without_dots(regex: str) -> list[str]:
    """The classes of letters that are repeated and hold neither `.` nor `-`, each once, in their order."""
    found = [
        text
        for (_, kind, text), (_, after, repeat) in pairwise(split_regex(regex))
        if after == "repeat" and repeat != "?" and _is_letters_only(kind, text)
    ]
    return list(dict.fromkeys(found))


def _is_letters_only(kind: str, text: str) -> bool:
    if kind == "escape":
        return text == "\\w"
    body = text[1:-1]
    if kind != "class" or body.startswith("^") or not any(each in body for each in _RANGES):
        return False
    for each in (*_RANGES, "0-9"):
        body = body.replace(each, "")
    return "." not in body and "-" not in body


RULE = Rule("NAM313", "class-without-dots", "warning", __doc__, check)
