"""What a person is shown who has to decide, as Markdown: the numbers that the gates saw; offsets stay in the journal.

What would be lost, and what only one side has, comes first and in words of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watershed.cutover.utc_instant import render_utc_instant

if TYPE_CHECKING:
    from watershed.cutover.actions import AskApproval, JsonObject

_PARTITIONS = 20  # as many rows of a table; the journal has all
_EPOCH_MS = 10**12  # a time since 1970 is above it, a duration below


def render_approval_evidence(wanted: AskApproval) -> str:
    """What the question's evidence says, whatever names are in it."""
    lines = [f"**{wanted.by}** is asked to decide: {_cell(wanted.question)}", ""]
    named = sorted(wanted.evidence.items(), key=lambda item: item[0] not in _SHOWN)
    for step, outcome in named:
        if not isinstance(outcome, Mapping):
            is_none = isinstance(outcome, Sequence) and not outcome
            lines += [f"**{_told(step)}:** {'none' if is_none else _cell(outcome)}", ""]
            continue
        lines += _SHOWN[step](outcome) if step in _SHOWN else _rows(step, outcome)
        lines.append("")
    return "\n".join(lines)


def _rows(step: str, outcome: Mapping[str, Any]) -> list[str]:
    return [f"#### {_told(step)}", "", "| what | seen |", "|---|---|", *_seen(outcome)]


def _seen(outcome: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(outcome.items(), key=lambda item: item[0] != "verdict"):
        if isinstance(value, Mapping):
            numbers = {key: number for key, number in value.items() if _is_number(number)}
            yield from (
                f"| {_told(name)}: {_cell(key)} | {_cell(number)} |" for key, number in numbers.items() if number
            )
            if zeros := [_cell(key) for key, number in numbers.items() if not number]:
                yield f"| {_told(name)}: {', '.join(zeros)} | 0 |"
        elif value is not None:
            yield f"| {_told(name)} | {_moment(value) if name.endswith('_ms') else _cell(value)} |"


def _loss(outcome: Mapping[str, Any]) -> list[str]:
    """`cutover.failover.loss_steps.declare_loss`"""
    loss: JsonObject = outcome["loss"]
    last, complete = loss["last_seen_ms"], loss["complete_ms"]
    partitions = [
        f"| {_cell(topic)}-{number} | {_cell(each['copied_through'])} | {_cell(each['source_end'])} | "
        f"{_cell('unknown' if each['offsets'] is None else each['offsets'])} |"
        for topic, held in loss["partitions"].items()
        for number, each in held.items()
        if each["offsets"] != 0
    ]
    return [
        "#### What is lost",
        "",
        "| what | how much |",
        "|---|---|",
        f"| records that the source was seen to hold, and that are not here | at most {_cell(loss['offsets'])} |",
        f"| seconds of writes, up to when the source was last seen | {_seconds(loss['rpo_ms'])} |",
        f"| seconds of writes, if producers reached the source until now | {_seconds(loss['at_most_ms'])} |",
        f"| offsets in transactions that were open | {_cell(loss['open_records'])} |",
        f"| everything written until then is here | "
        f"{'unknown' if complete is None else render_utc_instant(complete)} |",
        f"| the source was last seen | {'never' if last is None else render_utc_instant(last)} |",
        f"| partitions of which nothing is known | {_cell(', '.join(loss['unseen']) or 'none')} |",
        *_table("| partition | copied through | source's end | missing, at most |", partitions),
    ]


def _divergence(outcome: Mapping[str, Any]) -> list[str]:
    """`cutover.failover.divergence_steps.encode_divergence`"""
    partitions = [
        f"| {_cell(place)} | {_cell(each['records'])} | {', '.join(f'{a} to {b}' for a, b in each['ranges'][:5])} | "
        f"{render_utc_instant(each['oldest_ms'])} | {render_utc_instant(each['newest_ms'])} |"
        for place, each in outcome["partitions"].items()
    ]
    return [
        "#### What only the old primary has",
        "",
        f"{_cell(outcome['records'])} records that were never copied; they stay in its log, and are not merged.",
        *_table("| partition | records | offsets | oldest | newest |", partitions),
    ]


_SHOWN: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {"declare_loss": _loss, "divergence": _divergence}


def _table(head: str, rows: list[str]) -> list[str]:
    if not rows:
        return []
    more = [f"\nand {len(rows) - _PARTITIONS} more partitions: `topology journal`"] if len(rows) > _PARTITIONS else []
    return ["", head, "|" + "---|" * (head.count("|") - 1), *rows[:_PARTITIONS], *more]


def _seconds(ms: int | None) -> str:
    return "unknown" if ms is None else f"{ms / 1000:,.1f}"


def _moment(value: object) -> str:
    return render_utc_instant(value) if isinstance(value, int) and value > _EPOCH_MS else _cell(value)


def _told(name: str) -> str:
    return name.replace("_", " ")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    """Text in a table's cell; whatever a cluster's names hold, it stays one cell and no markup."""
    return escape_markdown(f"{value:,}" if _is_number(value) else str(value), "\\|<>`*[]")


def escape_markdown(text: str, marks: str = "\\|<>`*[]_") -> str:
    """The text as itself and on one line, whatever Markdown would make of it."""
    for mark in marks:
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
