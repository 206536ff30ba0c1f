"""Maps of settings in YAML and JSON: every entry with its place, as the properties reader gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from topology.finding import Label, Problem, Span
from topology.interop.formats import Document, spaced
from topology.interop.said import Notes, Said, is_key
from topology.nodes import Node, parse

_MAX_DOCUMENTS = 200


def settings_of(node: Node | None, path: str, notes: Notes) -> dict[str, Said]:
    """The scalars of a map. A duplicate key is said (SYN002), and the last one kept; a list is joined by commas."""
    out: dict[str, Said] = {}
    if node is None or node.kind != "map":
        if node is not None and node.text:
            notes.say("SYN011", f"`{path}` is no mapping of settings", node.span)
        return out
    for key, value in node.entries:
        if not is_key(key.text):
            notes.say("SYN011", "this is no name of a setting", key.span, "is there a quote missing before it?")
            continue
        name = f"{path}.{key.text}" if path else key.text
        if value.kind == "map":
            notes.say("SYN011", f"`{name}` is a mapping; expected a value", value.span)
            continue
        text = value.text
        if value.kind == "list":
            text = ",".join(item.text for item in value.items)
        if value.plain and text in ("null", "~", "Null", "NULL"):
            continue
        if key.text in out:
            before = (Label(out[key.text].key, "first here"),)
            notes.say("SYN002", f"`{name}` is said twice; only the last value counts", key.span, more=before)
        out[key.text] = Said(name, text, value.span, key.span)
    return out


def scalar(node: Node | None, name: str, path: str = "") -> Said | None:
    """The scalar under a key of a map; None when it is missing, null or no scalar."""
    if node is None or node.kind != "map":
        return None
    for key, value in reversed(node.entries):
        if key.text == name and value.kind == "scalar" and not (value.plain and value.text in ("", "null", "~")):
            return Said(f"{path}.{name}" if path else name, value.text, value.span, key.span)
    return None


def key_span(node: Node, name: str) -> Span:
    return next((key.span for key, _ in reversed(node.entries) if key.text == name), node.span)


def _refused(problem: Problem) -> tuple[str, Span, str]:
    if problem.code != "SYN014":
        return problem.message, problem.labels[0].span, problem.help
    what = problem.message.partition(" is not part")[0]
    message = f"{what} is not followed: its value is missing here" if "alias" in what else problem.message
    return message, problem.labels[0].span, "write the value out"


def documents_of(document: Document, notes: Notes) -> Iterator[Node]:
    """The tree of every YAML document of the file, with the lines of the file. What does not parse is said."""
    parts = re.split(r"(?m)^(?=---(?:\s|$))", spaced(document.text))
    line = 0
    for part in parts[:_MAX_DOCUMENTS]:
        if part.strip() and part.strip() != "---":
            node, problems = parse("\n" * line + part, document.file)
            for problem in problems:
                if not problem.message.startswith("anchor"):  # an anchor alone changes nothing; an alias does
                    notes.say(problem.code, *_refused(problem))
            if node is not None and node.kind != "scalar":
                yield node
        line += part.count("\n")
