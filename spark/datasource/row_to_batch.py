"""From a row back to the batch that it was: what a writer sends."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from crc32c import crc32c

from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME, RawBatch
from watershed.replicator.batch.records import build_raw_batch, decode_records
from watershed.replicator.errors import BadBatch
from watershed.spark.datasource.arrow_rows import ROW_CODEC_NAMES
from watershed.spark.errors import NotAppended, WrongUse

_NEEDED: Final = ("partition", "codec", "count", "first_timestamp_ms", "max_timestamp_ms", "payload")
_OFFSETS: Final = ("base_offset", "last_offset")
_KIND: Final = ("timestamp_type", "control")
# With these as well the header can be made again to the byte, so that the broker's own checksum proves the payload.
_CHECKED: Final = ("attributes", "producer_id", "producer_epoch", "sequence", "crc")

_FRONT = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BACK = struct.Struct(">hiqqqhii")  # attributes … record count


def require_columns(names: Collection[str], *, topic: str | None) -> None:
    """Raises WrongUse when rows cannot be written."""
    needed = (*_NEEDED, *(() if topic else ("topic",)))
    if missing := [name for name in needed if name not in names]:
        hint = "; the option topic names one for all rows" if "topic" in missing else ""
        raise WrongUse(
            f"kafka-batches writes rows of rows=batches, and these have no column {', '.join(missing)}{hint}. "
            f"They need {', '.join(needed)}; with {', '.join((*_OFFSETS, *_CHECKED))} the checksum is kept, too"
        )


def select_used_columns(names: Sequence[str]) -> list[str]:
    """Those of the columns that a writer looks at."""
    return [name for name in names if name in {"topic", *_NEEDED, *_OFFSETS, *_KIND, *_CHECKED}]


def build_batch_from_row(row: Mapping[str, Any]) -> RawBatch:
    """The batch of a row, its payload as it is; opened and packed anew only where records are missing in it or its
    times are the broker's. Raises NotAppended, which names the row."""
    where = _named(row)
    if gone := [name for name in _NEEDED if row[name] is None]:
        raise NotAppended(f"{where}: {', '.join(gone)} is null")
    if row.get("control"):
        raise NotAppended(f"{where} is the marker of a transaction; leave such rows out (where not control)")
    if row["codec"] not in ROW_CODEC_NAMES:
        raise NotAppended(f"{where}: codec {row['codec']} is none of {', '.join(ROW_CODEC_NAMES)}")
    if row["count"] < 1:
        raise NotAppended(f"{where} holds no records (count {row['count']}); leave such rows out")
    exact = all(row.get(name) is not None for name in (*_OFFSETS, *_CHECKED))
    delta = row["last_offset"] - row["base_offset"] if _has(row, _OFFSETS) else row["count"] - 1
    appended = row.get("timestamp_type") == "append"
    kind = row["attributes"] if exact else ROW_CODEC_NAMES.index(row["codec"]) | LOG_APPEND_TIME * appended
    producer, epoch, sequence = (row["producer_id"], row["producer_epoch"], row["sequence"]) if exact else (-1, -1, -1)
    payload = row["payload"]
    back = _BACK.pack(
        kind, delta, row["first_timestamp_ms"], row["max_timestamp_ms"], producer, epoch, sequence, row["count"]
    )
    crc = crc32c(payload, crc32c(back))
    if exact and crc != row["crc"]:
        raise NotAppended(f"{where}: its checksum does not fit. The payload or another column was changed on the way")
    base = row["base_offset"] if _has(row, _OFFSETS) else 0
    data = _FRONT.pack(base, BATCH_HEADER_BYTES - 12 + len(payload), -1, 2, crc) + back + payload
    batch = RawBatch(
        base,
        base + delta + 1,
        -1,
        kind,
        row["max_timestamp_ms"],
        producer,
        epoch,
        sequence,
        row["count"],
        memoryview(data),
    )
    if delta + 1 == row["count"] and not appended:
        return batch
    try:
        return build_raw_batch(decode_records(batch), batch.codec, batch.end)
    except BadBatch as error:
        raise NotAppended(f"{where} {error}") from None


def _has(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(row.get(name) is not None for name in names)


def _named(row: Mapping[str, Any]) -> str:
    place = f"{row.get('topic') or 'a row'}-{row['partition']}"
    return (
        f"{place}, batch at offset {row['base_offset']}" if row.get("base_offset") is not None else f"{place}, a batch"
    )
