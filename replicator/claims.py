"""What flows claim as their own writes (`clusters.claims`), as their ledger says it.

Everything that was written before the ledger is read is in it: runs are announced before their batches, and in
transactions the ledger's records are committed with those that they speak of.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import chain

from clusters.claims import NO_END, Claimed, Claims, Rule
from clusters.control import ControlRecord
from clusters.settings import ConnectionSettings
from replicator.ledger import Block, blocks_in, newest_records, transactional_in
from replicator.offsetmap import Stretch
from replicator.transactions.positions import Known, known_in


def read_claims(settings: ConnectionSettings, mapped: Collection[str]) -> dict[Claimed, Claims]:
    """Of all partitions of a cluster; empty where it has no ledger. Whole: what was read before it is in it.

    mapped: flows whose sequence numbers follow from offsets; with equal offsets (`offsets: aligned`) gaps have none.
    Raises ClusterError."""
    return claims_in(newest_records(settings), mapped)


def claims_in(records: Iterable[ControlRecord], mapped: Collection[str]) -> dict[Claimed, Claims]:
    """What the ledger's records say. Raises ProtocolError for unreadable ones."""
    records = list(records)
    by_sequence: dict[tuple[Claimed, str], list[Block]] = defaultdict(list)
    for block in blocks_in(records):
        place = Claimed(block.key.target_topic, block.target_id, block.key.partition)
        by_sequence[place, block.key.flow].append(block)
    rules: dict[Claimed, list[Rule]] = defaultdict(list)
    for (place, flow), blocks in by_sequence.items():
        rules[place] += _rules(blocks, numbered=flow in mapped)
    known: dict[Claimed, list[Known]] = defaultdict(list)
    for each in known_in(transactional_in(records)).values():
        key = each.position.key
        known[Claimed(key.target_topic, each.position.target_id, key.partition)].append(each)
    return {
        place: Claims(tuple(rules.get(place, ())), *_spans(known.get(place, ())), _begun(known.get(place, ())))
        for place in {*rules, *known}
    }


def _rules(blocks: list[Block], *, numbered: bool) -> list[Rule]:
    """Of one flow. What it wrote under older epochs than those that are written down still lies below the beginning of
    the newest: nobody can put anything there any more."""
    newest = max(blocks, key=lambda block: block.identity.epoch)
    first = 0 if newest.order else min((run.target for block in blocks for run in block.runs), default=newest.start)
    found = {
        Rule(
            who.producer_id,
            who.epoch,
            who.epoch + 1,
            who.base,
            NO_END,
            who.base if numbered else -1,
        )
        for who in {block.identity for block in blocks}
    }
    before = newest.identity
    older = Rule(before.producer_id, 0, before.epoch, first, before.base, -1)
    return sorted(found) + ([older] if before.epoch > 0 else [])


def _spans(known: Iterable[Known]) -> tuple[bytes, bytes]:
    """The offsets that were written in transactions, joined where they touch."""
    firsts, ends = array("q"), array("q")
    for stretch in sorted(chain.from_iterable(map(_stretches, known))):
        if ends and stretch.target <= ends[-1]:
            ends[-1] = max(ends[-1], stretch.target + stretch.records)
        else:
            firsts.append(stretch.target)
            ends.append(stretch.target + stretch.records)
    return firsts.tobytes(), ends.tobytes()


def _stretches(known: Known) -> Iterable[Stretch]:
    return chain(*known.blocks.values(), known.position.stretches)


def _begun(known: Iterable[Known]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((each.position.key.flow, each.position.begin.target) for each in known))
