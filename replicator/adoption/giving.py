"""Giving orders to go on behind records of others: their part to the ledger, the decision to the journal, the order.

Whatever is left after a crash in between says nothing by itself: parts without an order that was obeyed are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from clusters.control import FLOWS, JOURNAL, LEDGER, ControlWriter, encode, slot_of
from clusters.errors import ClusterError
from clusters.records import Value
from replicator.adoption.foreign import Foreign, entries
from replicator.adoption.prove import Proof
from replicator.orders import Order, order_key
from replicator.partition import PartitionKey


@dataclass(frozen=True, slots=True)
class Given:
    """An order with the part of the map that it stands on. told: what the journal says beside the order."""

    order: Order
    key: PartitionKey
    foreign: Foreign
    told: Value


def give_all(writer: ControlWriter, given: Sequence[Given], topology: str) -> None:
    """May be repeated with the same ids. Raises ClusterError; what was not ordered then is not gone on with."""
    failures: list[ClusterError] = []

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for each in given:
        slot = slot_of(each.order.flow, each.order.topic, each.order.partition)
        for name, value in entries(each.key, each.order.id, each.foreign):
            writer.put_nowait(LEDGER, name, value, slot, on_done=done)
    _settle(writer, failures)
    for each in given:
        order = each.order
        key = f"order/{order.flow}/{order.topic}/{order.partition}/{order.id}"
        writer.put_nowait(JOURNAL, key, line(each, topology), 0, on_done=done)
    _settle(writer, failures)
    for each in given:
        order = each.order
        writer.put_nowait(FLOWS, order_key(order.flow, order.topic, order.partition), order.to_json(), 0, on_done=done)
    _settle(writer, failures)


def adopted(order: Order, proof: Proof, accepted: Sequence[str]) -> Given:
    """The order to adopt what was proven; `accepted` are kinds of records that a person took along by name."""
    verdict = proof.verdict
    told: Value = {
        "accepted": list(accepted),
        "proven": sum(stretch.records for stretch in verdict.stretches),
        "counts": dict(verdict.counts),
        "findings": [finding.to_json() for finding in verdict.findings[:100]],
        "findings_in_all": len(verdict.findings),
    }
    foreign = Foreign(order.tool, order.base, order.position, verdict.stretches, verdict.extra())
    return Given(order, proof.key, foreign, told)


def line(given: Given, topology: str) -> Value:
    """The journal's record of the decision: what was ordered, and on what grounds. It carries the hash of its own
    content, as all orders do."""
    found: Value = {"record": "order", "of": topology, **given.order.to_json(), **given.told}
    return found | {"hash": "sha256:" + hashlib.sha256(encode(found)).hexdigest()}


def _settle(writer: ControlWriter, failures: Sequence[ClusterError]) -> None:
    writer.flush()
    if failures:
        raise failures[0]
