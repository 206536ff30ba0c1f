"""Numbers and durations of settings that are imported."""

from __future__ import annotations

import re

from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes

_DAY_S = 24 * 60 * 60


def render_seconds(seconds: int) -> str:
    """`90s`, `10m`, `2h`."""
    if seconds % 3600 == 0:
        return f"{seconds // 3600}h"
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"


def report_slow_discovery(
    said: ForeignSetting, seconds: int, unit: str, help_: str, ids: tuple[str, ...], notes: ImportNotes
) -> None:
    """SYC516 for an interval of a day or more, which is mostly a mistaken unit. unit: that of the setting."""
    days = seconds // _DAY_S
    if days:
        notes.add_problem(
            "SYC516",
            f"`{said.name}` is {'a day' if days == 1 else f'{days} days'} or more: new topics and partitions wait for "
            f"so long (it is in {unit})",
            said.span,
            help_,
            ids=ids,
            severity="warning",
        )


def parse_setting_number(said: ForeignSetting | None, notes: ImportNotes) -> int | None:
    """The whole number that a setting holds; None without the setting, and where it holds none, which is noted."""
    if said is None:
        return None
    if re.fullmatch(r"-?[0-9]{1,9}", said.text.strip()) is None:
        notes.add_problem("SYN011", f"`{said.name}`: expected a whole number", said.span)
        return None
    return int(said.text)
