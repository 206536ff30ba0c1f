"""Giving orders to go on behind records of others: their part to the ledger, the decision to the journal, the order.

Whatever is left after a crash in between says nothing by itself: parts without an order that was obeyed are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from clusters.control_topics import (
    FLOWS_TOPIC,
    JOURNAL_TOPIC,
    LEDGER_TOPIC,
    ControlWriter,
    compute_slot,
    encode_control_value,
)
from clusters.control_values import ControlValue
from clusters.errors import ClusterError
from replicator.adoption.copy_proof import PartitionProof
from replicator.copy.partition_copy import PartitionKey
from replicator.ledger.foreign_part import ForeignPart, build_foreign_records
from replicator.recovery.operator_decisions import OperatorDecision, build_decision_key


@dataclass(frozen=True, slots=True)
class DecisionWithMap:
    """An order with the part of the map that it stands on. told: what the journal says beside the order."""

    order: OperatorDecision
    key: PartitionKey
    foreign: ForeignPart
    told: ControlValue


def write_decisions(writer: ControlWriter, given: Sequence[DecisionWithMap], topology: str) -> None:
    """May be repeated with the same ids. Raises ClusterError; what was not ordered then is not gone on with."""
    failures: list[ClusterError] = []

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for each in given:
        slot = compute_slot(each.order.flow, each.order.topic, each.order.partition)
        for name, value in build_foreign_records(each.key, each.order.id, each.foreign):
            writer.put_nowait(LEDGER_TOPIC, name, value, slot, on_done=done)
    _settle(writer, failures)
    for each in given:
        order = each.order
        key = f"order/{order.flow}/{order.topic}/{order.partition}/{order.id}"
        writer.put_nowait(JOURNAL_TOPIC, key, build_decision_entry(each, topology), 0, on_done=done)
    _settle(writer, failures)
    for each in given:
        order = each.order
        writer.put_nowait(
            FLOWS_TOPIC, build_decision_key(order.flow, order.topic, order.partition), order.to_json(), 0, on_done=done
        )
    _settle(writer, failures)


def build_adoption_decision(order: OperatorDecision, proof: PartitionProof, accepted: Sequence[str]) -> DecisionWithMap:
    """The order to adopt what was proven; `accepted` are kinds of records that a person took along by name."""
    verdict = proof.verdict
    told: ControlValue = {
        "accepted": list(accepted),
        "proven": sum(stretch.records for stretch in verdict.stretches),
        "counts": dict(verdict.counts),
        "findings": [finding.to_json() for finding in verdict.findings[:100]],
        "findings_in_all": len(verdict.findings),
    }
    foreign = ForeignPart(order.tool, order.base, order.position, verdict.stretches, verdict.extra())
    return DecisionWithMap(order, proof.key, foreign, told)


def build_decision_entry(given: DecisionWithMap, topology: str) -> ControlValue:
    """The journal's record of the decision: what was ordered, and on what grounds. It carries the hash of its own
    content, as all orders do."""
    found: ControlValue = {"record": "order", "of": topology, **given.order.to_json(), **given.told}
    return found | {"hash": "sha256:" + hashlib.sha256(encode_control_value(found)).hexdigest()}


def _settle(writer: ControlWriter, failures: Sequence[ClusterError]) -> None:
    writer.flush()
    if failures:
        raise failures[0]
