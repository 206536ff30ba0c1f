"""`topology journal --orders`: decisions by hand, read from the lines that those who give and obey them write."""

from __future__ import annotations

from typing import Any, cast

from cli.journal_orders import orders, told, whole
from clusters.control import JOURNAL, ControlWriter
from clusters.flows import JOURNALED_PREFIX
from clusters.names import TopicPartition
from replicator.orders import Order, give, journal_outcome
from replicator.states import Span
from replicator.sync.group_records import GroupOrder, close_order, journal_order

AT = 1_795_293_194_904  # 2026-11-21 20:33:14 UTC
GAP = Order("accept-gap", "a-to-b", "orders", 0, "source_expired", 3, "ann", lost=Span(200, 250), id="9f", at_ms=AT)
PLACE = TopicPartition("orders", 1)


class Journal:
    """What is written to `watershed.journal`, and by workers beside the flows."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []

    def put(self, topic: str, key: str, value: dict[str, Any] | None, slot: int = 0) -> None:
        if (topic == JOURNAL or key.startswith(JOURNALED_PREFIX)) and value is not None:
            self.values.append(value)


def written() -> list[dict[str, Any]]:
    journal = Journal()
    writer = cast(ControlWriter, journal)
    give(writer, GAP, "shop")
    journal_outcome(writer, GAP, "shop", 4, "w1")
    reset = GroupOrder("a-to-b", "billing", {PLACE: 2533}, "bob", "7a", AT)
    journal_order(writer, reset, "shop")
    close_order(writer, reset, {PLACE: "set from 2533 to 150"})
    journal.values.append({"topology": "shop", "run": "one", "step": "fence"})  # a migration's
    return journal.values


def test_orders_and_what_became_of_them_are_told() -> None:
    assert [told(line) for line in orders(written(), frozenset({"a-to-b"}))] == [
        "2026-11-21 20:33:14  9f  ann: accept-gap a-to-b orders-0, source 200 to 249 given up",
        "2026-11-21 20:33:14  9f  obeyed: generation 4 of the ledger, by w1, source 200 to 249 given up",
        "2026-11-21 20:33:14  7a  bob: reset-group a-to-b group billing, orders-1 at 2533",
        "2026-11-21 20:33:14  7a  obeyed: orders-1 set from 2533 to 150",
    ]
    assert orders(written(), frozenset({"c-to-d"})) == []


def test_a_changed_line_is_seen() -> None:
    lines = orders(written(), frozenset({"a-to-b"}))
    assert all(whole(line) for line in lines)
    assert not whole({**lines[0], "actor": "carl"})
    assert not whole({key: value for key, value in lines[0].items() if key != "hash"})
