"""Keeping the ledger small: a partition that was taken over many times gets its map written anew, in one piece.

Every look at the logs is a generation of its own (decision 0003) and leaves a block behind. When there are many more
blocks than the map needs, the whole map becomes a generation of its own and the older blocks get tombstones. The new
blocks are acknowledged before the first tombstone is written, and they say what the old ones said, so a crash at any
moment leaves a ledger that reads the same (`tests/replicator/test_consolidation.py` tries each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clusters.control import LEDGER, ControlWriter, slot_of
from clusters.errors import ClusterError
from replicator.ledger import BLOCK_RUNS, Block, Ledger
from replicator.resume import Remembered

SPARE_BLOCKS = 16  # how many blocks more than the map needs are left alone


def consolidate(template: Block, ledger: Ledger, writer: ControlWriter) -> Block:
    """Write the map anew under the generation of `template` when there are too many blocks. Returns the template of
    the generation that goes on then. Raises ClusterError; the ledger reads the same then."""
    remembered, _ = ledger.remembered(template.key)
    old = ledger.records.get(template.key, ())
    if remembered is None or len(old) <= _needed(remembered) + SPARE_BLOCKS:
        return template
    blocks = whole(template, remembered)
    _write(writer, [(block.record_key, block) for block in blocks])
    _write(writer, [(key, None) for key in old])
    return replace(template, generation=template.generation._replace(number=template.generation.number + 1))


def whole(template: Block, remembered: Remembered) -> list[Block]:
    """The blocks that hold everything that is remembered, also what was announced and has not happened yet: a slow
    worker may still make it happen."""
    runs = remembered.map.runs
    parts = [runs[at : at + BLOCK_RUNS] for at in range(0, len(runs), BLOCK_RUNS)]
    return [replace(template, number=template.number + at, runs=part) for at, part in enumerate(parts)]


def _needed(remembered: Remembered) -> int:
    return -(-len(remembered.map.runs) // BLOCK_RUNS)


def _write(writer: ControlWriter, records: Sequence[tuple[str, Block | None]]) -> None:
    failures: list[ClusterError] = []

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for key, block in records:
        flow, topic, partition = key.split("|")[:3]
        value = None if block is None else block.to_json()
        writer.put_nowait(LEDGER, key, value, slot_of(flow, topic, int(partition)), on_done=done)
    writer.flush()
    if failures:
        raise failures[0]
