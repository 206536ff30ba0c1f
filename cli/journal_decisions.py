"""`topology journal --orders`: what people ordered by hand, and what became of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings

_FLOW_ORDERS = (
    "pause",
    "resume",
    "stop",
    "restart",
    "fail",
)  # replicator.flow_state_order, which imports a Kafka client
_PRUNE = "prune"  # replicator.sync.access_removal
_PARTITION_ORDERS = ("pause", "resume", "move", "release")  # replicator.partition_control


def show_decisions(topology: str, flows: frozenset[str], targets: Iterable[ConnectionSettings], form: str) -> int:
    """Orders of `flows`, cluster by cluster, oldest first. 1 when one was changed after it was written.

    Raises ClusterError.
    """
    found: list[dict[str, Any]] = []
    for settings in targets:
        lines = select_decisions(_written(settings), flows)
        found += [{"cluster": settings.alias, "whole": is_unchanged_decision(line), "entry": line} for line in lines]
    if form == "json":
        click.echo(json.dumps({"schema": 1, "topology": topology, "orders": found}, indent=2, ensure_ascii=False))
    else:
        for each in found:
            click.echo(_shown(each["entry"]) + ("" if each["whole"] else "  CHANGED after it was written"))
        if not found:
            click.echo(f"nothing was ordered for {', '.join(sorted(flows))}")
    return 0 if all(each["whole"] for each in found) else 1


def _written(settings: ConnectionSettings) -> Iterator[Mapping[str, Any]]:
    """Decisions are in watershed.journal, which workers may not write; their outcomes are in watershed.flows."""
    from watershed.clusters.control_records import read_control_log
    from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC
    from watershed.clusters.errors import TopicMissing
    from watershed.clusters.flow_records import JOURNALED_PREFIX

    for topic, beginning in ((JOURNAL_TOPIC, ""), (FLOWS_TOPIC, JOURNALED_PREFIX)):
        with contextlib.suppress(TopicMissing):
            for record in read_control_log(settings, topic, [0], 0):
                if record.key.startswith(beginning):
                    yield record.value or {}


def select_decisions(values: Iterable[Mapping[str, Any]], flows: frozenset[str]) -> list[Mapping[str, Any]]:
    """Of these flows, by the time of the order; each before what became of it."""
    kinds = ("order", "order-obeyed")
    found = [each for each in values if each.get("record") in kinds and each.get("flow") in list(flows)]
    first: dict[str, int] = {}
    for number, each in enumerate(found):
        first.setdefault(str(each.get("id")), number)
    return sorted(found, key=lambda each: (_at(each), first[str(each.get("id"))], each["record"]))


def _at(line: Mapping[str, Any]) -> int:
    at_ms = line.get("at_ms")
    return at_ms if isinstance(at_ms, int) else 0


def _shown(line: Mapping[str, Any]) -> str:
    """Anybody with the right to write may have written a line that is no order."""
    try:
        return render_decision(line)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError, OverflowError):
        return f"a line about flow {line['flow']} that is no order of this version"


def is_unchanged_decision(line: Mapping[str, Any]) -> bool:
    """Whether it still is what its hash says (`replicator.recovery.operator_decisions.journal_decision`)."""
    from watershed.clusters.control_topics import encode_control_value

    content = {key: value for key, value in line.items() if key != "hash"}
    return bool(line.get("hash") == "sha256:" + hashlib.sha256(encode_control_value(content)).hexdigest())


def render_decision(line: Mapping[str, Any]) -> str:
    """One line: of an order when it was given, of what became of it the order's time again."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(line["at_ms"] / 1000))
    what = _place(line)
    if line["record"] == "order-obeyed":
        return f"{when}  {line['id']}  obeyed: {_outcome(line)}"
    return f"{when}  {line['id']}  {line['actor']}: {line['kind']} {line['flow']}{what}{_about(line)}"


def _place(line: Mapping[str, Any]) -> str:
    """What the order is about, beside its flow; nothing for an order about the whole flow."""
    if "group" in line:
        return f" group {line['group']}"
    if line["kind"] == _PRUNE:
        return ""
    if line["kind"] == "sync":
        return f" {', '.join(line['groups'])}"
    if line["kind"] in _FLOW_ORDERS and "topic" not in line:
        return ""
    return f" {line['topic']}" if line["partition"] is None else f" {line['topic']}-{line['partition']}"


def _about(line: Mapping[str, Any]) -> str:
    if line["kind"] in _PARTITION_ORDERS and "topic" in line:
        to = f", to worker {line['worker']}" if line["worker"] else ""
        return to + (f": {line['reason']}" if line["reason"] else "")
    if line["kind"] == _PRUNE:
        return f", {', '.join((*line.get('rights', ()), *line.get('users', ())))}"
    if line["kind"] in _FLOW_ORDERS:
        return f", {line['before']} -> {line['after']}" + (f": {line['reason']}" if line.get("reason") else "")
    if line["kind"] == "reset-group":
        return "".join(
            f", {topic}-{number} at {'no position' if offset is None else offset}"
            for topic, numbers in line["answers"].items()
            for number, offset in numbers.items()
        )
    if line["kind"] == "adopt":
        accepted = f", with {', '.join(line['accepted'])} accepted" if line.get("accepted") else ""
        return f", source {line['position']} behind target {line['base']} of {line['tool']}{accepted}"
    if line["kind"] == "copy-foreign":
        return f", source {line['lost'][0]} to {line['lost'][1] - 1} copied as an application's"
    if line.get("lost"):
        return f", source {line['lost'][0]} to {line['lost'][1] - 1} given up"
    return ""


def _outcome(line: Mapping[str, Any]) -> str:
    if "outcome" in line:
        return "; ".join(f"{place} {text}" for place, text in line["outcome"].items()) or "nothing was left to do"
    return f"generation {line['obeyed_as']} of the ledger, by {line['worker']}" + _about(line)
