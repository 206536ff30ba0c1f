"""A proof's summary as text for a terminal: the verdict, what differs, and what was not compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from watershed.topology.shell_command import render_shell_command

_CLASSES = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "quarantined", "repeated",
           "pending", "proven_earlier")  # fmt: skip
_TOPICS = 30  # lines at most; what is not proven comes first
_DIFFERENCES = 10
_POSITIONS = 10
_COLOURS = {"proven": "green", "repeated": "green", "different": "red"}


def render_verdict(document: Mapping[str, Any], out: Path, file: Path) -> str:
    """For people: verdict and counts first, the evidence's folder last."""
    parts = [
        _headline(document),
        _topics(document),
        _pending(document, file),
        _differences(document, out, file),
        _groups(document),
        _listed("finding", document["findings"]),
        _listed("not compared", document["not_compared"]),
        [f"proof root {document['proof_root']}", f"seal       {document['seal']}", f"evidence   {out}"],
    ]
    first, *rest = ["\n".join(lines) for lines in parts if lines]
    return "\n\n".join([first, *map(_printable, rest)])


def _printable(text: str) -> str:
    """Ids of groups can be anything: nothing that a terminal obeys."""
    return "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)


def _headline(document: Mapping[str, Any]) -> list[str]:
    counted = document["proven"] + sum(document[name] for name in ("missing", "altered", "reordered", "unverifiable"))
    word = str(document["verdict"])
    if word == "repeated":
        word = f"proven, {document['repeated']:,} repeated"
    verdict = click.style(word.upper(), fg=_COLOURS.get(document["verdict"], "yellow"), bold=True)
    numbers = f"unproven {document['unproven']:,}   proven {document['proven']:,} of {counted:,}"
    lines = [
        f"{verdict}   {numbers}   pending {document['pending']:,}",
        f"level {document['level']}, {document['mode']}, {document['chunks']:,} chunks, {document['seconds']} s",
    ]
    if document["proven_earlier"]:
        lines.append(f"{document['proven_earlier']:,} more were proven by an earlier proof that this one builds on")
    by_key = sum(line.get("mode") == "state" for line in document["window"]["partitions"])
    if by_key:
        lines.append(f"partitions of compacted topics whose counts are keys, not records: {by_key:,}")
    if not document["exact"]:
        lines.append("counts are lower bounds: too much differs to align it record by record")
    return lines


def _topics(document: Mapping[str, Any]) -> list[str]:
    topics = document["topics"]
    if not topics:
        return []
    flows = len({topic["flow"] for topic in topics}) > 1
    names = [f"{topic['flow']}  {topic['topic']}" if flows else str(topic["topic"]) for topic in topics]
    names = [name if t["topic"] == t["target_topic"] else f"{name} → {t['target_topic']}"
             for name, t in zip(names, topics, strict=True)]  # fmt: skip
    shown = [name for name in ("proven", *_CLASSES) if name == "proven" or any(topic[name] for topic in topics)]
    width = min(72, max(map(len, names[:_TOPICS])))
    head = [name.replace("_", " ") for name in shown]
    widths = [
        max(len(title), *(len(f"{topic[name]:,}") for topic in topics)) for name, title in zip(shown, head, strict=True)
    ]
    lines = [f"{'topic':<{width}}  " + "  ".join(f"{title:>{w}}" for title, w in zip(head, widths, strict=True))]
    for name, topic in zip(names[:_TOPICS], topics, strict=False):
        cells = "  ".join(f"{topic[column]:>{w},}" for column, w in zip(shown, widths, strict=True))
        lines.append(f"{name:<{width}}  {cells}")
    if len(topics) > _TOPICS:
        lines.append(f"and {len(topics) - _TOPICS} more topics: see summary.json")
    return lines


def _pending(document: Mapping[str, Any], file: Path) -> list[str]:
    """A proof does not ask what the workers do, so it cannot say whether waiting helps; `topology status` can."""
    ours = not any(topic.get("alignment") == "inferred" for topic in document["topics"])
    records = any(line["pending"] and line.get("mode") != "state" for line in document["window"]["partitions"])
    if not (ours and records) or document["findings"]:
        return []  # another tool's copy, keys of a compacted topic, or a finding says why
    return [
        f"pending records were not copied yet; whether the flow goes on: "
        f"{render_shell_command('topology', 'status', file)}"
    ]


def _differences(document: Mapping[str, Any], out: Path, file: Path) -> list[str]:
    some = document["differences"][:_DIFFERENCES]
    if not some:
        return []
    named, total = document["named"]["differences"], document["named"]["of"]
    lines = [f"differences: {total:,}, of which {named:,} are named in diffs.parquet" if named < total
             else f"differences: {total:,}, all of them in diffs.parquet"]  # fmt: skip
    for each in some:
        kind = f"{each['kind']} ({', '.join(each['components'])})" if each["components"] else str(each["kind"])
        place = f"{each['topic']}-{each['partition']}"
        sides = [
            f"{side} {each[f'{side}_offset']}" for side in ("source", "target") if each[f"{side}_offset"] is not None
        ]
        lines.append(f"  {kind:<24}  {place}  {', '.join(sides)}")
    if document["worst_chunks"]:
        chunk = document["worst_chunks"][0]["chunk"]
        lines.append(
            f"look into the worst: {render_shell_command('topology', 'verify', file, '--explain', chunk, '-o', out)}"
        )
    return lines


def _groups(document: Mapping[str, Any]) -> list[str]:
    groups = document["groups"]
    if not groups["compared"]:
        return []
    words = ", ".join(f"{count} {word}" for word, count in groups["landings"].items())
    lines = [f"groups: {groups['compared']} positions; on the target {words}"]
    odd = [each for each in groups["positions"] if each["judged"] != "same"]
    for each in odd[:_POSITIONS]:
        lines.append(f"  {each['judged']:<10} {_render_position(each)}")
    more = groups["compared"] - groups["same"] - min(len(odd), _POSITIONS)
    return [*lines, f"  and {more} more: see groups.parquet"] if more > 0 else lines


def _render_position(each: Mapping[str, Any]) -> str:
    """`billing on orders-3: committed 12 is 12 on the target, where 15 is committed: ahead by 3`"""
    text = f"{each['group']} on {each['topic']}-{each['partition']}: committed {each['committed']}"
    if each["translated"] is not None:
        off = "" if each["translation"] == "exact" else f" ({_by(each['translation'], each['translation_records'])})"
        text += f" is {each['translated']} on the target{off}"
    if each["at_target"] is not None:
        text += f", where {each['at_target']} is committed: {_by(each['landing'], each['landing_records'])}"
    return f"{text}; {each['why']}" if each["why"] else text


def _by(word: str, records: int | None) -> str:
    return word if records is None else f"{word} by {records:,}"


def _listed(title: str, lines: list[str]) -> list[str]:
    return (
        [f"{title}: {lines[0]}"]
        if len(lines) == 1
        else [f"{title}:", *(f"  {line}" for line in lines)]
        if lines
        else []
    )
