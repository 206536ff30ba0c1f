"""Maps of settings in YAML and JSON: every entry with its place, as the properties reader gives them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.interop.import_formats import ForeignDocument, replace_json_tabs
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, is_setting_name
from watershed.topology.spelling import suggest_word
from watershed.topology.yaml_tree import YamlNode, parse_yaml

_MAX_DOCUMENTS = 200


def collect_settings(node: YamlNode | None, path: str, notes: ImportNotes) -> dict[str, ForeignSetting]:
    """The scalars of a map. A duplicate key is said (SYN002), and the last one kept; a list is joined by commas."""
    out: dict[str, ForeignSetting] = {}
    if node is None or node.kind != "map":
        if node is not None and node.text:
            notes.add_problem("SYN011", f"`{path}` is no mapping of settings", node.span)
        return out
    for key, value in node.entries:
        if not is_setting_name(key.text):
            notes.add_problem("SYN011", "this is no name of a setting", key.span, "is there a quote missing before it?")
            continue
        name = f"{path}.{key.text}" if path else key.text
        if value.kind == "map":
            notes.add_problem("SYN011", f"`{name}` is a mapping; expected a value", value.span)
            continue
        text = value.text
        if value.kind == "list":
            text = ",".join(item.text for item in value.items)
        if value.plain and text in ("null", "~", "Null", "NULL"):
            continue
        if key.text in out:
            before = (Label(out[key.text].key, "first here"),)
            notes.add_problem("SYN002", f"`{name}` is said twice; only the last value counts", key.span, more=before)
        out[key.text] = ForeignSetting(name, text, value.span, key.span)
    return out


def find_scalar_setting(node: YamlNode | None, name: str, path: str = "") -> ForeignSetting | None:
    """The scalar under a key of a map; None when it is missing, null or no scalar."""
    if node is None or node.kind != "map":
        return None
    for key, value in reversed(node.entries):
        if key.text == name and value.kind == "scalar" and not (value.plain and value.text in ("", "null", "~")):
            return ForeignSetting(f"{path}.{name}" if path else name, value.text, value.span, key.span)
    return None


def find_key_span(node: YamlNode, name: str) -> FileSpan:
    """Where the key stands; the whole mapping if it has no such key."""
    return next((key.span for key, _ in reversed(node.entries) if key.text == name), node.span)


def report_unknown_fields(node: YamlNode, path: str, known: Collection[str], notes: ImportNotes) -> None:
    """SYN003 for each key of a mapping that is not one of `known`. path: of the mapping, for messages."""
    for key, _ in node.entries:
        if key.text not in known:
            near = suggest_word(key.text, known)
            notes.add_problem(
                "SYN003", f"`{path}` has no `{key.text}`", key.span, f"did you mean `{near}`?" if near else ""
            )


def _refused(problem: Problem) -> tuple[str, FileSpan, str]:
    if problem.code != "SYN014":
        return problem.message, problem.labels[0].span, problem.help
    what = problem.message.partition(" is not part")[0]
    message = f"{what} is not followed: its value is missing here" if "alias" in what else problem.message
    return message, problem.labels[0].span, "write the value out"


def parse_yaml_documents(document: ForeignDocument, notes: ImportNotes) -> Iterator[YamlNode]:
    """The tree of every YAML document of the file, with the lines of the file. What does not parse is said."""
    parts = re.split(r"(?m)^(?=---(?:\s|$))", replace_json_tabs(document.text))
    line = 0
    for part in parts[:_MAX_DOCUMENTS]:
        if part.strip() and part.strip() != "---":
            node, problems = parse_yaml("\n" * line + part, document.file)
            for problem in problems:
                if not problem.message.startswith("anchor"):  # an anchor alone changes nothing; an alias does
                    notes.add_problem(problem.code, *_refused(problem))
            if node is not None and node.kind != "scalar":
                yield node
        line += part.count("\n")
