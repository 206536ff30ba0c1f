"""`topology journal --orders`: decisions by hand, read from the lines that those who give and obey them write."""

from __future__ import annotations

from typing import Any, cast

from watershed.cli.journal_decisions import is_unchanged_decision, render_decision, select_decisions
from watershed.clusters.control_topics import JOURNAL_TOPIC, ControlWriter
from watershed.clusters.flow_records import JOURNALED_PREFIX
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.partition_states import OffsetSpan
from watershed.replicator.recovery.operator_decisions import OperatorDecision, journal_decision_outcome, submit_decision
from watershed.replicator.sync.group_control_records import (
    GroupResetDecision,
    close_group_reset,
    journal_group_reset,
    record_group_sync,
)

AT = 1_795_293_194_904  # 2026-11-21 20:33:14 UTC
GAP = OperatorDecision(
    "accept-gap", "a-to-b", "orders", 0, "source_expired", 3, "ann", lost=OffsetSpan(200, 250), id="9f", at_ms=AT
)
PLACE = TopicPartition("orders", 1)


class Journal:
    """What is written to `watershed.journal`, and by workers beside the flows."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []

    def put(self, topic: str, key: str, value: dict[str, Any] | None, slot: int = 0) -> None:
        if (topic == JOURNAL_TOPIC or key.startswith(JOURNALED_PREFIX)) and value is not None:
            self.values.append(value)


def written() -> list[dict[str, Any]]:
    journal = Journal()
    writer = cast(ControlWriter, journal)
    submit_decision(writer, GAP, "shop")
    journal_decision_outcome(writer, GAP, "shop", 4, "w1")
    reset = GroupResetDecision("a-to-b", "billing", {PLACE: 2533}, "bob", "7a", AT)
    journal_group_reset(writer, reset, "shop")
    close_group_reset(writer, reset, {PLACE: "set from 2533 to 150"})
    journal.values.append({"topology": "shop", "run": "one", "step": "fence"})  # a migration's
    return journal.values


def test_orders_and_what_became_of_them_are_told() -> None:
    assert [render_decision(line) for line in select_decisions(written(), frozenset({"a-to-b"}))] == [
        "2026-11-21 20:33:14  9f  ann: accept-gap a-to-b orders-0, source 200 to 249 given up",
        "2026-11-21 20:33:14  9f  obeyed: generation 4 of the ledger, by w1, source 200 to 249 given up",
        "2026-11-21 20:33:14  7a  bob: reset-group a-to-b group billing, orders-1 at 2533",
        "2026-11-21 20:33:14  7a  obeyed: orders-1 set from 2533 to 150",
    ]
    assert select_decisions(written(), frozenset({"c-to-d"})) == []


def test_who_has_groups_synced_is_told() -> None:
    journal = Journal()
    record_group_sync(cast(ControlWriter, journal), "a-to-b", ["web", "billing"], "ann", "shop")
    [line] = select_decisions(journal.values, frozenset({"a-to-b"}))
    assert is_unchanged_decision(line)
    assert render_decision(line).endswith(f"{line['id']}  ann: sync a-to-b billing, web")


def test_a_changed_line_is_seen() -> None:
    lines = select_decisions(written(), frozenset({"a-to-b"}))
    assert all(is_unchanged_decision(line) for line in lines)
    assert not is_unchanged_decision({**lines[0], "actor": "carl"})
    assert not is_unchanged_decision({key: value for key, value in lines[0].items() if key != "hash"})
