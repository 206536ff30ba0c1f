"""Keeping the ledger small: a partition that was taken over many times gets its map written anew, in one piece.

Every inspection of the logs is a generation of its own (decision 0003) and leaves a block behind. When there are many
more blocks than the map needs, the whole map becomes a generation of its own and the older blocks get tombstones. The
new blocks are acknowledged before the first tombstone is written, and they say what the old ones said, so a crash at
any moment leaves a ledger that reads the same (`tests/replicator/test_consolidation.py` tries each).

The map is stored under the newest producer epoch that has a batch in the log (`drop_unlanded_epochs`). An epoch that
was only claimed can be discarded by the next claim, and a map stored under it would be lost. The newest claims keep
their own blocks: they say up to where producer epochs are used up, and what a worker that was slow behind its claim
sends after all can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watershed.clusters.control_topics import LEDGER_TOPIC, ControlWriter, compute_slot
from watershed.clusters.errors import ClusterError
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_block import BLOCK_RUNS, CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import BrokenOffsetMap
from watershed.replicator.partition_key import PartitionKey

SPARE_BLOCKS = 32  # how many records more than the map needs are left alone; a worker leaves 17 behind at most
_CLAIMS_KEPT = 8  # producer epochs that were claimed last, whether they have landed anything or not


def consolidate_map(
    key: PartitionKey,
    generation: Generation,
    target_end: int,
    landed: LedgerState | None,
    ledger: Ledger,
    writer: ControlWriter,
    *,
    spare: int = SPARE_BLOCKS,
    landed_known: bool = True,
) -> Generation:
    """Write the map anew under `generation` when it has more than `spare` blocks too many.

    target_end: the end of the target's log. landed: the ledger's state without producer epochs that wrote nothing.
    landed_known: the last batch of the log says which epochs those are; an empty log does not say it.
    Returns the generation to go on with. Raises ClusterError; the ledger reads the same then.
    """
    records = ledger.records.get(key, {})
    claimed = max(records.values(), default=0)  # the newest producer epoch; it need not have landed anything
    if landed is None or isinstance(landed.map, BrokenOffsetMap):
        return generation
    here = landed.identity.epoch
    past = max(here if landed_known else -1, claimed - _CLAIMS_KEPT)
    old = [name for name, epoch in records.items() if epoch == here or epoch <= past]
    if len(old) <= _needed(landed) + spare:
        return generation
    _write(writer, [(block.record_key, block) for block in build_map_blocks(key, generation, target_end, landed)])
    _write(writer, [(name, None) for name in old])
    return generation._replace(number=generation.number + 1)


def build_map_blocks(
    key: PartitionKey, generation: Generation, target_end: int, remembered: LedgerState
) -> list[LedgerBlock]:
    """The blocks that say everything that is remembered, also what was announced and has not happened yet: a slow
    worker may still make it happen. Being as young as the log end, they lie over the generations that they repeat."""
    runs = remembered.map.own
    template = LedgerBlock(
        key=key,
        generation=generation,
        number=CLAIM_NUMBER + 1,
        start=target_end,
        identity=remembered.identity,
        source_id=remembered.source_id,
        target_id=remembered.target_id,
        runs=(),
        epochs=remembered.epochs,
        since=remembered.since,
        order=remembered.order,
        note=remembered.note,
        needs_epoch=remembered.needs_epoch,
        closed=remembered.closed,
        after=remembered.after,
        adopted=remembered.adopted,
        filling=remembered.filling,
        given_up=remembered.given_up,
    )
    parts = [runs[at : at + BLOCK_RUNS] for at in range(0, len(runs), BLOCK_RUNS)]
    return [replace(template, number=template.number + at, runs=part) for at, part in enumerate(parts)]


def _needed(remembered: LedgerState) -> int:
    return -(-len(remembered.map.own) // BLOCK_RUNS)


def _write(writer: ControlWriter, records: Sequence[tuple[str, LedgerBlock | None]]) -> None:
    failures: list[ClusterError] = []

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for key, block in records:
        flow, topic, partition = key.split("|")[:3]
        value = None if block is None else block.to_json()
        writer.put_nowait(LEDGER_TOPIC, key, value, compute_slot(flow, topic, int(partition)), on_done=done)
    writer.flush()
    if failures:
        raise failures[0]
