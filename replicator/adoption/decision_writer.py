"""Giving orders to go on behind records of others: their part to the ledger, the decision to the journal, the order.

Whatever is left after a crash in between says nothing by itself: parts without an order that was obeyed are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from watershed.clusters.control_topics import (
    FLOWS_TOPIC,
    JOURNAL_TOPIC,
    LEDGER_TOPIC,
    ControlWriter,
    compute_slot,
    encode_control_value,
)
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ClusterError
from watershed.replicator.adoption.copy_proof import PartitionProof
from watershed.replicator.ledger.foreign_part import ForeignPart, build_foreign_records
from watershed.replicator.recovery.operator_decisions import DecisionWithMap, OperatorDecision, build_decision_key


def write_decisions(writer: ControlWriter, decisions: Sequence[DecisionWithMap], topology: str) -> None:
    """May be repeated with the same ids. Raises ClusterError; what was not ordered then is not gone on with."""
    failures: list[ClusterError] = []

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for each in decisions:
        slot = compute_slot(each.decision.flow, each.decision.topic, each.decision.partition)
        for name, value in build_foreign_records(each.key, each.decision.id, each.foreign):
            writer.put_nowait(LEDGER_TOPIC, name, value, slot, on_done=done)
    _settle(writer, failures)
    for each in decisions:
        decision = each.decision
        key = f"order/{decision.flow}/{decision.topic}/{decision.partition}/{decision.id}"
        writer.put_nowait(JOURNAL_TOPIC, key, build_decision_entry(each, topology), 0, on_done=done)
    _settle(writer, failures)
    for each in decisions:
        decision = each.decision
        writer.put_nowait(
            FLOWS_TOPIC,
            build_decision_key(decision.flow, decision.topic, decision.partition),
            decision.to_json(),
            0,
            on_done=done,
        )
    _settle(writer, failures)


def build_adoption_decision(
    decision: OperatorDecision, proof: PartitionProof, accepted: Sequence[str]
) -> DecisionWithMap:
    """The order to adopt what was proven; `accepted` are kinds of records that a person took along by name."""
    verdict = proof.verdict
    details: ControlValue = {
        "accepted": list(accepted),
        "proven": sum(stretch.records for stretch in verdict.stretches),
        "counts": dict(verdict.counts),
        "findings": [finding.to_json() for finding in verdict.findings[:100]],
        "findings_in_all": len(verdict.findings),
    }
    foreign = ForeignPart(decision.tool, decision.base, decision.position, verdict.stretches, verdict.extra())
    return DecisionWithMap(decision, proof.key, foreign, details)


def build_decision_entry(decision: DecisionWithMap, topology: str) -> ControlValue:
    """The journal's record of the decision: what was ordered, and on what grounds. It carries the hash of its own
    content, as all orders do."""
    entry: ControlValue = {"record": "order", "of": topology, **decision.decision.to_json(), **decision.details}
    return entry | {"hash": "sha256:" + hashlib.sha256(encode_control_value(entry)).hexdigest()}


def _settle(writer: ControlWriter, failures: Sequence[ClusterError]) -> None:
    writer.flush()
    if failures:
        raise failures[0]
