"""Members of a JSON object set or taken away in its text. What is not named keeps its bytes.

A number stays as it was written, members keep their order, and unknown ones travel on, which reading the whole document
into columns and writing it again would not do. A member that stands there several times is changed each time.
"""

from __future__ import annotations

import json
import json.decoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_BLANKS: Final = " \t\n\r"
_DROPPED: Final = None
# Numbers are only passed over: no digit is lost, and none is too many.
_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).scan_once  # type: ignore[attr-defined]
_scan_string = json.decoder.scanstring  # type: ignore[attr-defined]


@dataclass(slots=True)
class MemberChanges:
    """What happens to the members of one object: name → its new text, None to take it away, or the changes within."""

    members: dict[str, str | MemberChanges | None] = field(default_factory=dict)

    @classmethod
    def build(cls, changes: Sequence[tuple[tuple[str, ...], str | None]]) -> MemberChanges:
        """From (names that lead to the member, its new text or None). No path may lead through another one."""
        found = cls()
        for names, text in changes:
            here = found
            for name in names[:-1]:
                below = here.members.setdefault(name, cls())
                assert isinstance(below, MemberChanges), "paths are apart (topology.record_transform)"
                here = below
            here.members[names[-1]] = text
        return found


def change_members(text: str, changes: MemberChanges) -> str:
    """The document with these changes. Raises ValueError where it is no JSON object, or a member that leads to one that
    is set is none."""
    at = _skip_blanks(text, 0)
    changed, end = _change_object(text, at, changes, "")
    if _skip_blanks(text, end) != len(text):
        raise ValueError("there is more behind the JSON object")
    return f"{text[:at]}{changed}{text[end:]}"


def _change_object(text: str, at: int, changes: MemberChanges, where: str) -> tuple[str, int]:
    """The object that begins at `at`, and where it ends."""
    if text[at : at + 1] != "{":
        raise ValueError(f"`{where.removesuffix('.')}` is no JSON object" if where else "it is no JSON object")
    kept: list[str] = []
    left: dict[str, Any] = dict(changes.members)
    at += 1
    if text[_skip_blanks(text, at) : _skip_blanks(text, at) + 1] == "}":
        return _close(kept, left, text[at : _skip_blanks(text, at)]), _skip_blanks(text, at) + 1
    while True:
        began = at
        name, colon, value = _read_name(text, at)
        if name in changes.members:
            piece, at = _change_member(text, value, changes.members[name], f"{where}{name}.")
            if piece is not _DROPPED:
                kept.append(f"{text[began:colon]}{text[colon:value]}{piece}")
            left.pop(name, None)
        else:
            at = _pass_value(text, value)
            piece = text[began:at]
            kept.append(piece)
        after = _skip_blanks(text, at)
        sign = text[after : after + 1]
        if sign == "}":
            return _close(kept, left, text[at:after]), after + 1
        if sign != ",":
            raise ValueError(f"expected `,` or `}}` at character {after}")
        if kept and piece is not _DROPPED:
            kept[-1] += text[at:after]
        at = after + 1


def _change_member(text: str, at: int, change: str | MemberChanges | None, where: str) -> tuple[str | None, int]:
    if isinstance(change, MemberChanges):
        if text[at : at + 1] != "{" and not _is_setting(change):
            return text[at : _pass_value(text, at)], _pass_value(text, at)  # nothing within it can be taken away
        return _change_object(text, at, change, where)
    return change, _pass_value(text, at)


def _close(kept: list[str], left: Mapping[str, str | MemberChanges | None], blanks: str) -> str:
    """The object of these members, and of those that are set and were not there."""
    for name, change in left.items():
        added = _build_missing(change)
        if added is not None:
            kept.append(f"{json.dumps(name, ensure_ascii=False)}:{added}")
    return f"{{{','.join(kept)}{blanks}}}"


def _build_missing(change: str | MemberChanges | None) -> str | None:
    if not isinstance(change, MemberChanges):
        return change
    return _close([], change.members, "") if _is_setting(change) else None


def _is_setting(changes: MemberChanges) -> bool:
    """Whether something is set, here or further in."""
    return any(
        _is_setting(each) if isinstance(each, MemberChanges) else each is not None for each in changes.members.values()
    )


def _read_name(text: str, at: int) -> tuple[str, int, int]:
    """The member's name, where the text behind it goes on, and where its value begins."""
    at = _skip_blanks(text, at)
    if text[at : at + 1] != '"':
        raise ValueError(f"expected a name in quotes at character {at}")
    name, behind = _scan_string(text, at + 1, True)
    colon = _skip_blanks(text, behind)
    if text[colon : colon + 1] != ":":
        raise ValueError(f"expected `:` at character {colon}")
    return name, behind, _skip_blanks(text, colon + 1)


def _pass_value(text: str, at: int) -> int:
    try:
        end: int = _scan(text, at)[1]
    except StopIteration:
        raise ValueError(f"expected a value at character {at}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return end


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at
