"""The filters of Cluster Linking as selectors, and selectors as such filters:
`{"topicFilters": [{"name": …, "patternType": …, "filterType": …}]}`.

A filter knows one name (`LITERAL`), all names that begin with a text (`PREFIXED`), and every name (`LITERAL` with `*`).
EXCLUDE wins over INCLUDE, as it does here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from watershed.topology.finding import FileSpan
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.selectors import Selector

EVERY_NAME = Selector("glob", "*")
ALL_ACLS_FILTER = (
    '{"aclFilters":[{"resourceFilter":{"resourceType":"any","patternType":"any"},'
    '"accessFilter":{"operation":"any","permissionType":"any"}}]}'
)
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIELDS = ("name", "patternType", "filterType")


@dataclass(frozen=True, slots=True)
class LinkFilters:
    """readable: whether the document is what it should be; else nothing is known of what it selects."""

    include: tuple[Selector, ...] = ()
    exclude: tuple[Selector, ...] = ()
    readable: bool = True


def parse_link_filters(said: ForeignSetting, kind: str, notes: ImportNotes) -> LinkFilters:
    """`kind` is `topicFilters` or `groupFilters`. What is wrong or cannot be said goes to the notes."""
    found: dict[str, list[Selector]] = {"INCLUDE": [], "EXCLUDE": []}
    entries = _entries(said, kind, notes)
    if entries is None:
        notes.add_not_carried(f"`{said.name}`", "it could not be read", said.span)
        return LinkFilters(readable=False)
    for index, entry in enumerate(entries):
        where = f"`{said.name}`: {kind}[{index}]"
        selector = _selector(entry, where, said.span, notes)
        how = str(entry.get("filterType", "")).upper()
        if how not in found:
            notes.add_problem("SYN011", f"{where}: `filterType` is INCLUDE or EXCLUDE", said.span)
        elif selector is not None:
            found[how].append(selector)
        elif how == "EXCLUDE":
            notes.add_problem("NAM302", f"{where}: what it excludes cannot be said, so more is selected", said.span)
    return LinkFilters(_sorted(found["INCLUDE"]), _sorted(found["EXCLUDE"]))


def has_filter_for_all_acls(said: ForeignSetting | None, notes: ImportNotes) -> bool:
    """Whether the filters let every ACL through. Without filters none does."""
    if said is None or not said.text.strip():
        return False
    for entry in _entries(said, "aclFilters", notes) or []:
        resource, access = entry.get("resourceFilter", {}), entry.get("accessFilter", {})
        if not isinstance(resource, dict) or not isinstance(access, dict):
            notes.add_problem("SYN011", f"`{said.name}`: `resourceFilter` and `accessFilter` are objects", said.span)
            continue
        values = [*resource.values(), *access.values()]
        if all(str(value).lower() in ("any", "*", "") for value in values):
            return True
    return False


def build_link_filter(selector: Selector) -> dict[str, str] | None:
    """`name` and `patternType`; None when a filter cannot say it."""
    if selector.kind == "literal":
        return {"name": selector.text, "patternType": "LITERAL"}
    if selector.kind == "regex":
        return None
    body = selector.text.rstrip("*")
    body += "*" if len(body) < len(selector.text) else ""
    if body == "*":
        return {"name": "*", "patternType": "LITERAL"}
    if _NAME.fullmatch(body):
        return {"name": body, "patternType": "LITERAL"}
    if body.endswith("*") and _NAME.fullmatch(body[:-1]):
        return {"name": body[:-1], "patternType": "PREFIXED"}
    return None


def encode_link_filters(kind: str, include: Iterable[Selector], exclude: Iterable[Selector]) -> str:
    """In one line. All selectors are such that `written` has a filter for them."""
    entries = []
    for how, selectors in (("INCLUDE", include), ("EXCLUDE", exclude)):
        entries += [(build_link_filter(each) or {}) | {"filterType": how} for each in sorted(set(selectors))]
    return json.dumps({kind: entries}, separators=(",", ":"))


def _selector(entry: dict[str, Any], where: str, span: FileSpan, notes: ImportNotes) -> Selector | None:
    for name in entry:
        if name not in _FIELDS:
            notes.add_problem(
                "SYN003", f"{where}: `{name}` is no field of a filter", span, f"known: {', '.join(_FIELDS)}"
            )
    text, pattern = entry.get("name"), str(entry.get("patternType", "")).upper()
    if not isinstance(text, str) or not text:
        notes.add_problem("SYN012", f"{where} needs a `name`", span)
        return None
    if pattern == "LITERAL" and text == "*":
        return EVERY_NAME
    if pattern not in ("LITERAL", "PREFIXED"):
        notes.add_problem("SYN011", f"{where}: `patternType` is LITERAL or PREFIXED", span)
        return None
    if _NAME.fullmatch(text) is None:
        why = "a `*` in it is an ordinary character here" if "*" in text else "letters, digits, `.`, `_`, `-` only"
        notes.add_problem("NAM302", f"{where}: no such name can exist: {why}", span, "PREFIXED says `begins with`")
        return None
    return Selector("literal", text) if pattern == "LITERAL" else Selector("glob", text + "*")


def _entries(said: ForeignSetting, kind: str, notes: ImportNotes) -> list[dict[str, Any]] | None:
    """The objects of the list; None with a problem when it is not one."""
    if not said.text.strip():
        return []
    try:
        document = json.loads(said.text)
    except json.JSONDecodeError as error:
        notes.add_problem(
            "SYN001", f"`{said.name}`: {error.msg}, so this is no JSON", _inside(said, error), _example(kind)
        )
        return None
    except RecursionError:
        notes.add_problem("SYN001", f"`{said.name}`: nested too deeply", said.span)
        return None
    listed = document.get(kind) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        notes.add_problem("SYN011", f'`{said.name}`: expected `{{"{kind}": [{{…}}, …]}}`', said.span, _example(kind))
        return None
    for name in document:
        if name != kind:
            notes.add_problem("SYN003", f"`{said.name}`: `{name}` is not read here", said.span, f"only `{kind}` is")
    return listed


def _inside(said: ForeignSetting, error: json.JSONDecodeError) -> FileSpan:
    """The place of the mistake, when the value stands in one line as it is; else the value."""
    span = said.span
    if span.line == span.end_line and span.end_column - span.column >= len(said.text.rstrip()):
        column = min(span.column + error.pos, max(span.column, span.end_column - 1))
        return FileSpan(span.file, span.line, column, span.line, column + 1)
    return span


def _example(kind: str) -> str:
    if kind == "aclFilters":
        return f"such as {ALL_ACLS_FILTER}"
    return f'such as {{"{kind}": [{{"name": "orders", "patternType": "PREFIXED", "filterType": "INCLUDE"}}]}}'


def _sorted(selectors: list[Selector]) -> tuple[Selector, ...]:
    return tuple(sorted(set(selectors)))
