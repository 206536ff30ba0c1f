"""Chunks that earlier proofs have proven. A proof that builds on one reads what that one did not prove, and a
share of the rest again.

`summary.json` has the windows, `chunks.parquet` beside it the ranges that were equal. Each chunk counts by itself,
whatever else its proof found; it stays proven when its records expire.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from watershed.clusters.record_fingerprint import FINGERPRINT_VERSION
from watershed.spark.errors import WrongUse
from watershed.spark.fingerprint import ChunkSum
from watershed.spark.judging.proof_window import EarlierWindow, ObservedPartition, PartitionPair, has_same_mapping
from watershed.spark.judging.verdict import ChunkRow, compute_proof_root, decode_chunk_row
from watershed.spark.reading.offset_range import OffsetRange
from watershed.topology.bounded_json import parse_json_object

_CHUNKS = "chunks.parquet"
_SCHEMAS = (1, 2)  # of `spark.evidence.proof_results`, that this version can build on
_NOT_ITS_OWN = "proven as a whole; the table of its chunks was not there"

_Ids = tuple[str, str]  # topic ids on source and target


@dataclass(frozen=True, slots=True)
class EarlierProof:
    """run: how many proofs were built on one another, this one included. windows: where the earlier windows began on
    both sides. chunks: what was proven, in log order; both by partition and its topic ids."""

    run: int = 0
    windows: Mapping[tuple[PartitionPair, _Ids], tuple[int, int]] = field(default_factory=dict)
    chunks: Mapping[tuple[PartitionPair, _Ids], tuple[ChunkRow, ...]] = field(default_factory=dict)

    def of(self, seen: ObservedPartition) -> tuple[EarlierWindow | None, tuple[ChunkRow, ...]]:
        """(for the window, the chunks that need not be read again) of a partition as it is now."""
        key = seen.place, (str(seen.ids[0]), str(seen.ids[1]))
        if key not in self.windows:
            return None, ()
        chunks: list[ChunkRow] = []
        for row in self.chunks.get(key, ()):
            if row.source.start == row.source.end and row.target.start == row.target.end:
                continue
            apart = not chunks or (
                row.source.start >= chunks[-1].source.end and row.target.start >= chunks[-1].target.end
            )
            if apart and has_same_mapping(seen, row.source, row.target):
                chunks.append(row)
        return EarlierWindow(*self.windows[key], tuple((row.source, row.target) for row in chunks)), tuple(chunks)


def read_earlier_proof(path: Path) -> EarlierProof:
    """The proof that this summary and its table of chunks describe. Raises WrongUse for a file that is no summary, or
    that proves nothing.
    """
    try:
        document = parse_json_object(path.read_bytes())
        if document["schema"] not in _SCHEMAS:
            known = " and ".join(map(str, _SCHEMAS))
            raise WrongUse(f"{path} has schema {document['schema']}; this version reads {known}")
        windows = {_key(p): p for p in document["window"]["partitions"]}
        run = int(document.get("recheck", {}).get("run", 0))
        useless = (
            document["verdict"] == "error"
            or document["level"] == "L0"
            or document["fingerprint"] != FINGERPRINT_VERSION
        )
        rows = [] if useless else _rows(path.with_name(_CHUNKS), document["proof_root"])
        chunks = _chunks(windows, rows)
    except OSError as error:
        raise WrongUse(f"cannot read the earlier summary {path}: {error.strerror}") from None
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongUse(f"{path} is not the summary of a proof ({error!r})") from None
    if useless or (windows and not chunks and any(p["source_end"] > p["source_start"] for p in windows.values())):
        raise WrongUse(
            f"{path} proves nothing to build on (verdict {document['verdict']}, level {document['level']}); "
            "run a whole proof instead, without --since"
        )
    starts = {key: (int(p["source_start"]), int(p["target_start"])) for key, p in windows.items()}
    return EarlierProof(run, starts, chunks)


def merge_neighbour_chunks(chunks: Sequence[ChunkRow], size: int, *, in_place: bool = False) -> tuple[ChunkRow, ...]:
    """Neighbours within one chunk of `size` source offsets joined to one row; a proof every few minutes would otherwise
    leave a table of tiny rows. in_place: as in `ProofPartition`.
    """
    found: list[ChunkRow] = []
    for row in chunks:
        before = found[-1] if found else row
        follows = before.source.end == row.source.start and before.target.end == row.target.start
        together = before.source.start // size == (row.source.end - 1) // size and before.by == row.by
        if found and follows and together and _NOT_ITS_OWN not in (before.why, row.why):
            pairs = ((before.source_sum, row.source_sum), (before.target_sum, row.target_sum))
            sums = [a.add_in_place(b) if in_place else a + b for a, b in pairs]
            spans = OffsetRange(before.source.start, row.source.end), OffsetRange(before.target.start, row.target.end)
            found[-1] = replace(row, source=spans[0], target=spans[1], source_sum=sums[0], target_sum=sums[1])
        else:
            found.append(row)
    return tuple(found)


def select_rechecked_chunks(chunks: Iterable[ChunkRow], run: int, share: float) -> tuple[ChunkRow, ...]:
    """The chunks that proof number `run` reads again; each comes once in 1 / share proofs. Raises WrongUse."""
    if not 0 <= share <= 1:
        raise WrongUse(f"the share of a re-check lies between 0 and 1, not {share}")
    turns = round(1 / share) if share > 0 else 0
    return tuple(row for row in chunks if turns and row.why != _NOT_ITS_OWN and _number(row) % turns == run % turns)


def _key(p: Mapping[str, Any]) -> tuple[PartitionPair, _Ids]:
    return PartitionPair(p["flow"], p["topic"], p["target_topic"], p["partition"]), (p["source_id"], p["target_id"])


def _rows(path: Path, root: str) -> list[ChunkRow] | None:
    """None when there is no table. Raises WrongUse for one of another proof."""
    from pyarrow import ArrowInvalid, parquet

    if not path.exists():
        return None
    try:
        rows = [decode_chunk_row(line) for line in parquet.read_table(path).to_pylist()]
    except ArrowInvalid as error:
        raise WrongUse(f"{path} is not the table of a proof's chunks ({error})") from None
    if compute_proof_root(rows) != root:
        raise WrongUse(f"{path} is not the table that {path.with_name('summary.json')} was made with, or was changed")
    return rows


def _chunks(
    windows: Mapping[tuple[PartitionPair, _Ids], Mapping[str, Any]], rows: Sequence[ChunkRow] | None
) -> dict[tuple[PartitionPair, _Ids], tuple[ChunkRow, ...]]:
    found: dict[tuple[PartitionPair, _Ids], tuple[ChunkRow, ...]] = {}
    if rows is None:  # a partition that was proven as a whole counts as one chunk
        for key, p in windows.items():
            source, target = (
                OffsetRange(p["source_start"], p["source_end"]),
                OffsetRange(p["target_start"], p["target_end"]),
            )
            if p["unproven"] == 0 and p.get("quarantined", 0) == 0 and source.end > source.start:
                n = ChunkSum(p["proven"] + p["proven_earlier"])
                found[key] = (ChunkRow(key[0], source, target, n, n, "equal", why=_NOT_ITS_OWN),)
        return found
    keys = {place: (place, ids) for place, ids in windows}
    proven: dict[tuple[PartitionPair, _Ids], list[ChunkRow]] = {}
    for row in sorted(rows, key=lambda row: (row.source, row.target)):
        if row.status in ("equal", "earlier") and row.place in keys:
            proven.setdefault(keys[row.place], []).append(replace(row, status="equal"))
    return {key: tuple(some) for key, some in proven.items()}


def _number(row: ChunkRow) -> int:
    text = json.dumps([*row.place, row.source.start])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
