"""Members of a JSON object set or taken away in its text. What is not named keeps its bytes.

A number stays as it was written, members keep their order, and unknown ones travel on, which reading the whole document
into columns and writing it again would not do. A member that stands there several times is changed each time.
"""

from __future__ import annotations

import json
import json.decoder
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_BLANKS: Final = " \t\n\r"
# Numbers are only passed over: no digit is lost, and none is too many.
_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).scan_once  # type: ignore[attr-defined]
_BLANK: Final = r"[ \t\n\r]*"
_NAME: Final = re.compile(rf'{_BLANK}"((?:[^"\\\x00-\x1f]|\\.)*)"{_BLANK}:{_BLANK}')
_SIGN: Final = re.compile(rf"({_BLANK})([,}}])")
_END: Final = re.compile(rf"({_BLANK})}}")
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
                assert isinstance(below, MemberChanges), "paths are apart (watershed.topology.record_transform)"
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
    members, left = changes.members, None
    at += 1
    end = _END.match(text, at)
    if end is not None:
        return _close(kept, members, end[1]), end.end()
    while True:
        name, value = _read_name(text, at)
        piece: str | None
        if name in members:
            piece, end_at = _change_member(text, value, members[name], f"{where}{name}.")
            if piece is not None:
                piece = text[at:value] + piece
            left = dict(members) if left is None else left
            left.pop(name, None)
        else:
            end_at = _pass_value(text, value)
            piece = text[at:end_at]
        sign = _SIGN.match(text, end_at)
        if sign is None:
            raise ValueError(f"expected `,` or `}}` at character {end_at}")
        if sign[2] == "}":
            if piece is not None:
                kept.append(piece)
            return _close(kept, members if left is None else left, sign[1]), sign.end()
        if piece is not None:
            kept.append(piece + sign[1])
        at = sign.end()


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


def _read_name(text: str, at: int) -> tuple[str, int]:
    """The member's name, and where its value begins."""
    found = _NAME.match(text, at)
    if found is None:
        raise ValueError(f"expected a name in quotes and `:` at character {at}")
    name = found[1]
    return (name if "\\" not in name else _scan_string(text, found.start(1), True)[0]), found.end()


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
