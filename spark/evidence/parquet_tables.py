"""The tables of a proof as Parquet: one row shape each, the same columns in the same order also where a table is empty.

`docs/proof.md` says what every column means. Offsets are half-open ranges; times of records are ms since 1970 (they can
be any number), times of the proof are timestamps in UTC; 64 bit hashes are hex texts, because most readers know signed
integers only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from watershed.spark.judging.group_position_landing import LandedPosition
from watershed.spark.judging.proof_window import ProofWindow
from watershed.spark.judging.verdict import ChunkRow, ConfirmedDifference, Counts, ProofJudgement, encode_chunk_row

if TYPE_CHECKING:
    import pyarrow as pa

TableRows = Sequence[Mapping[str, Any]]
COUNT_COLUMNS: Final = ("unproven", *(field.name for field in fields(Counts)))
_PLACE: Final = {"flow": "text", "topic": "text", "target_topic": "text", "partition": "int32"}
_SUMS: Final = {"records": "int64", "bytes": "int64"} | dict.fromkeys(
    ("m", "order", "key", "value", "headers", "timestamp"), "text"
)

# Column → type. What can be null has a question mark.
TABLE_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "runs": {
        "run_id": "text",
        "topology": "text?",
        "plan_hash": "text?",
        "flows": "texts",
        "mode": "text",
        "level": "text",
        "verdict": "text",
        "exit_code": "int32",
        **dict.fromkeys(COUNT_COLUMNS, "int64"),
        "exact": "bool",
        "records": "int64",
        "bytes": "int64",
        "chunks": "int64",
        "diffs": "int64",
        "groups": "int64",
        "proof_root": "text",
        "fingerprint": "int32",
        "engine": "text?",
        "spark_version": "text?",
        "policy": "text",  # JSON: what was asked for
        "started_at": "time",
        "ended_at": "time",
        "seconds": "double",
        "error": "text?",
    },
    "partitions": {
        "run_id": "text",
        **_PLACE,
        **dict.fromkeys(("source_start", "source_end", "target_start", "target_end", "barrier"), "int64?"),
        "source_id": "text?",
        "target_id": "text?",
        **dict.fromkeys(COUNT_COLUMNS, "int64"),
    },
    "chunks": {
        "run_id": "text",
        "chunk": "text",
        **_PLACE,
        "status": "text",
        "by": "text",
        "reads": "int32",
        "why": "text",
        **{
            f"{side}_{name}": kind
            for side in ("source", "target")
            for name, kind in (
                {"start": "int64", "end": "int64"} | _SUMS | {"since": "int64", "until": "int64"}
            ).items()
        },
    },
    "diffs": {
        "run_id": "text",
        "chunk": "text",
        **_PLACE,
        "kind": "text",
        "source_offset": "int64?",
        "target_offset": "int64?",
        "components": "texts",
        "source_fp": "text?",
        "target_fp": "text?",
        "source_timestamp": "int64?",
        "target_timestamp": "int64?",
        "key_hash": "text?",
    },
    "groups": {
        "run_id": "text",
        "flow": "text",
        "group": "text",
        "target_group": "text",
        "topic": "text",
        "target_topic": "text",
        "partition": "int32",
        "committed": "int64?",
        "translated": "int64?",
        "translation": "text",
        "translation_records": "int64?",
        "at_target": "int64?",
        "landing": "text",
        "landing_records": "int64?",
        "judged": "text",
        "why": "text",
        "source_fp": "text?",
        "target_fp": "text?",
    },
}


def build_arrow_schema(name: str) -> pa.Schema:
    """The Arrow schema of a table of the evidence, by the table's name."""
    import pyarrow as pa

    kinds = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("ms", tz="UTC"),
    }
    columns = TABLE_COLUMNS[name].items()
    return pa.schema([pa.field(column, kinds[kind.rstrip("?")], kind.endswith("?")) for column, kind in columns])


def encode_parquet(name: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A table as the content of a Parquet file. Raises ValueError for a row of another shape."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = list(TABLE_COLUMNS[name])
    for row in rows:
        if row.keys() != TABLE_COLUMNS[name].keys():
            odd = sorted(row.keys() ^ TABLE_COLUMNS[name].keys())
            raise ValueError(
                f"a row of table {name} has other columns than spark/evidence/parquet_tables.py names: {', '.join(odd)}"
            )
    arrays = {column: [row[column] for row in rows] for column in columns}
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pydict(arrays, schema=build_arrow_schema(name)), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def build_chunk_name(topic: str, partition: int, source_start: int) -> str:
    """What people call a chunk: `orders-3@150000` begins at source offset 150000. Within one flow it is unique."""
    return f"{topic}-{partition}@{source_start}"


def build_run_row(document: Mapping[str, Any], diffs: int, groups: int) -> dict[str, Any]:
    """The row of a summary."""
    same = ("run_id", "mode", "level", "verdict", "exit_code", "exact", "records", "bytes", "chunks", "proof_root",
            "fingerprint", "seconds", *COUNT_COLUMNS)  # fmt: skip
    maybe = ("topology", "plan_hash", "engine", "spark_version", "error")
    row = {name: document[name] for name in same} | {name: document.get(name) for name in maybe}
    row |= {name: datetime.fromisoformat(document[name]) for name in ("started_at", "ended_at")}
    row["flows"] = [flow["id"] for flow in document["flows"]]
    return row | {"policy": json.dumps(document["policy"], sort_keys=True), "diffs": diffs, "groups": groups}


def build_partition_rows(
    run_id: str, judgement: ProofJudgement, windows: Iterable[ProofWindow]
) -> list[dict[str, Any]]:
    """Of all partitions, also of those that have no window because there is no copy of them."""
    by_place = {window.place: window for window in windows}
    rows = []
    for place in sorted({*judgement.partitions, *by_place}):
        window = by_place.get(place)
        rows.append(
            {
                "run_id": run_id,
                **place._asdict(),
                "source_start": window.source.start if window else None,
                "source_end": window.source.end if window else None,
                "target_start": window.target.start if window else None,
                "target_end": window.target.end if window else None,
                "barrier": window.tail.end if window else None,
                "source_id": str(window.ids[0]) if window else None,
                "target_id": str(window.ids[1]) if window else None,
                **judgement.partitions.get(place, Counts()).to_json(),
            }
        )
    return rows


def build_chunk_rows(run_id: str, rows: Iterable[ChunkRow]) -> list[dict[str, Any]]:
    """In the order of their logs."""
    lines = []
    for row in sorted(rows, key=lambda row: (row.place, row.source, row.target)):
        name = build_chunk_name(row.place.topic, row.place.partition, row.source.start)
        lines.append({"run_id": run_id, "chunk": name, **encode_chunk_row(row)})
    return lines


def build_diff_rows(
    run_id: str, confirmed: Iterable[ConfirmedDifference], rows: Iterable[ChunkRow], limit: int
) -> list[dict[str, Any]]:
    """At most `limit` differences, in the order of their logs; each with the chunk in which it lies."""
    chunks = [row for row in rows if row.status in ("different", "state", "repeated")]
    lines = []
    for each in confirmed:
        near = sorted((row for row in chunks if row.place == each.place), key=lambda row: (row.source, row.target))
        for example in each.difference.examples:
            row = _home(near, example.source_offset, example.target_offset)
            start = row.source.start if row else each.source.start
            lines.append(
                {
                    "run_id": run_id,
                    "chunk": build_chunk_name(each.place.topic, each.place.partition, start),
                    **each.place._asdict(),
                    "kind": example.kind,
                    "source_offset": example.source_offset,
                    "target_offset": example.target_offset,
                    "components": list(example.components),
                    "source_fp": _hex(example.source_fp),
                    "target_fp": _hex(example.target_fp),
                    "source_timestamp": example.source_ts,
                    "target_timestamp": example.target_ts,
                    "key_hash": _hex(example.key),
                }
            )
    lines.sort(key=lambda line: (line["flow"], line["topic"], line["partition"], _at(line)))
    return lines[:limit]


def build_group_row(found: LandedPosition) -> dict[str, Any]:
    """A tried position as the table `groups` has it, but for the run id."""
    line = {field.name: getattr(found, field.name) for field in fields(found)}
    return line | {"source_fp": _hex(found.source_fp), "target_fp": _hex(found.target_fp)}


def build_group_rows(run_id: str, found: Iterable[LandedPosition]) -> list[dict[str, Any]]:
    """Rows of the table `groups`."""
    return [{"run_id": run_id, **build_group_row(each)} for each in found]


def _home(rows: Sequence[ChunkRow], source: int | None, target: int | None) -> ChunkRow | None:
    """The chunk of a difference: by its source offset, else by its target offset; behind all of them it is the last."""
    for row in rows:
        if source is not None and row.source.start <= source < row.source.end:
            return row
        if source is None and target is not None and row.target.start <= target < row.target.end:
            return row
    return rows[-1] if rows else None


def _at(line: Mapping[str, Any]) -> tuple[int, int]:
    source, target = line["source_offset"], line["target_offset"]
    return (target if source is None else source), (source if target is None else target)


def _hex(value: int | None) -> str | None:
    return None if value is None else f"{value & 0xFFFFFFFFFFFFFFFF:016x}"
