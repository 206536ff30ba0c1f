"""What flows claim as their own writes (`clusters.claim_rules`), as their ledger says it.

Everything that was written before the ledger is read is in it: runs are announced before their batches, and in
transactions the ledger's records are committed with those that they speak of.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import chain

from watershed.clusters.claim_rules import (
    UNBOUNDED_END_OFFSET,
    ClaimedPartition,
    ClaimRule,
    PartitionClaims,
    name_claimed_partition,
)
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.ledger import decode_blocks, read_newest_records, select_transaction_records
from watershed.replicator.ledger.ledger_block import LedgerBlock
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, decode_positions


def read_claims(settings: ConnectionSettings, mapped: Collection[str]) -> dict[ClaimedPartition, PartitionClaims]:
    """Of all partitions of a cluster; empty where it has no ledger. Whole: what was read before it is in it.

    mapped: flows whose sequence numbers follow from offsets; with equal offsets (`offsets: aligned`) gaps have none.
    Raises ClusterError."""
    return build_claims(read_newest_records(settings), mapped)


def build_claims(records: Iterable[ControlRecord], mapped: Collection[str]) -> dict[ClaimedPartition, PartitionClaims]:
    """What the ledger's records say. Raises ProtocolError for unreadable ones."""
    records = list(records)
    by_sequence: dict[tuple[ClaimedPartition, str], list[LedgerBlock]] = defaultdict(list)
    for block in decode_blocks(records):
        place = name_claimed_partition(block.key.target_topic, block.target_id, block.key.partition)
        by_sequence[place, block.key.flow].append(block)
    rules: dict[ClaimedPartition, list[ClaimRule]] = defaultdict(list)
    for (place, flow), blocks in by_sequence.items():
        rules[place] += _rules(blocks, numbered=flow in mapped)
    known: dict[ClaimedPartition, list[PositionAndRuns]] = defaultdict(list)
    for each in decode_positions(select_transaction_records(records)).values():
        key = each.position.key
        known[name_claimed_partition(key.target_topic, each.position.target_id, key.partition)].append(each)
    return {
        place: PartitionClaims(tuple(rules.get(place, ())), *_spans(known.get(place, ())), _begun(known.get(place, ())))
        for place in {*rules, *known}
    }


def _rules(blocks: list[LedgerBlock], *, numbered: bool) -> list[ClaimRule]:
    """Claim rules of one flow.

    Batches of older producer epochs, of which the ledger has no blocks any more, stand below the base of the newest
    epoch. That part of the log is closed: nobody can append there.
    """
    newest = max(blocks, key=lambda block: block.identity.epoch)
    first = 0 if newest.order else min((run.target for block in blocks for run in block.runs), default=newest.start)
    found = {
        ClaimRule(
            who.producer_id,
            who.epoch,
            who.epoch + 1,
            who.base,
            UNBOUNDED_END_OFFSET,
            who.base if numbered else -1,
        )
        for who in {block.identity for block in blocks}
    }
    before = newest.identity
    older = ClaimRule(before.producer_id, 0, before.epoch, first, before.base, -1)
    return sorted(found) + ([older] if before.epoch > 0 else [])


def _spans(known: Iterable[PositionAndRuns]) -> tuple[bytes, bytes]:
    """The offsets that were written in transactions, joined where they touch."""
    firsts, ends = array("q"), array("q")
    for stretch in sorted(chain.from_iterable(map(_stretches, known))):
        if ends and stretch.target <= ends[-1]:
            ends[-1] = max(ends[-1], stretch.target + stretch.records)
        else:
            firsts.append(stretch.target)
            ends.append(stretch.target + stretch.records)
    return firsts.tobytes(), ends.tobytes()


def _stretches(known: PositionAndRuns) -> Iterable[ExplicitRun]:
    return chain(*known.blocks.values(), known.position.stretches)


def _begun(known: Iterable[PositionAndRuns]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((each.position.key.flow, each.position.begin.target) for each in known))
