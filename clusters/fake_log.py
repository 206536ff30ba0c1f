"""One partition's log in memory: the broker's checks on append, and what a Fetch is answered.

Rules: batch-passthrough.md §1 and §2 (read in and run against Apache Kafka's UnifiedLog and LogValidator).
Records of lz4, snappy and zstd batches are not looked into (but zstd is, for keys on a compacted topic); everything
about their headers is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import cramjam

from watershed.clusters.errors import ProtocolError
from watershed.clusters.fake_compaction import StoredBatch, compact_log
from watershed.clusters.fake_producers import FakeProducerStates
from watershed.clusters.record_batch import (
    ABORT,
    BATCH_CRC_START,
    CODEC_IDS,
    LOG_APPEND_TIME,
    RECORD_BATCH_HEADER_BYTES,
    BatchHeader,
    BatchRecord,
    assign_batch_offset,
    compute_batch_crc,
    decode_batch_header,
    decode_batch_records,
    split_batches,
)
from watershed.clusters.wire.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    RECORD_LIST_TOO_LARGE,
)

_DEFAULTS = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.type": "CreateTime",
    "segment.bytes": str(1 << 30),
}


@dataclass(frozen=True, slots=True)
class _AppendRefusal:
    code: int
    message: str


@lru_cache(maxsize=1 << 12)
def _decode_once(data: bytes) -> tuple[BatchRecord, ...]:
    """The cleaner and every look at a log read the same batches again."""
    return tuple(decode_batch_records(data))


@dataclass(slots=True)
class PartitionLog:
    """`configs` are the topic's own, over `_DEFAULTS`. One replica, so the high watermark is the log end."""

    configs: Mapping[str, str] = field(default_factory=dict)
    batches: list[StoredBatch] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    leader_epoch: int = 0
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)  # (leader epoch, first offset)
    producers: FakeProducerStates = field(default_factory=FakeProducerStates)
    coordinators: dict[int, int] = field(default_factory=dict)  # producer id → epoch in its newest marker
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first, marker's offset

    def last_stable(self) -> int:
        """Returns the first offset of the oldest open transaction, or the log end."""
        return min([self.end, *self.producers.open_transactions()])

    def append(self, data: bytes, now_ms: int) -> tuple[int, int, str]:
        """A client's append. (error, base offset or -1, message); a repeat answers the original offset."""
        refusal = self._refusal(data, now_ms)
        if refusal is not None:
            return refusal.code, -1, refusal.message
        batch = decode_batch_header(data)
        error, known = self.producers.check(batch)
        if error:
            return error, -1, f"producer {batch.producer_id}: sequence {batch.base_sequence} is not next"
        if known is not None:
            return NONE, known.offset, ""
        return NONE, self.write(data, now_ms), ""

    def write(self, data: bytes, now_ms: int) -> int:
        """Store without any check (what a replica or a coordinator writes); its base offset."""
        if self.config("message.timestamp.type") == "LogAppendTime":
            data = _stamped(data, now_ms)
        data = assign_batch_offset(data, self.end, self.leader_epoch)
        batch = decode_batch_header(data)
        if not self.epoch_starts or self.epoch_starts[-1][0] < self.leader_epoch:
            self.epoch_starts.append((self.leader_epoch, self.end))
        if batch.is_control:
            started = self.producers.transaction_start(batch.producer_id)
            kind = struct.unpack_from(">h", decode_batch_records(data)[0].key or b"\0\0\0\1", 2)[0]
            if kind == ABORT and started >= 0:
                self.aborted.append((batch.producer_id, started, batch.base_offset))
        self.batches.append(StoredBatch(batch, data))
        self.producers.appended(batch)
        self.end = batch.last_offset + 1
        return batch.base_offset

    def delete_records(self, before: int) -> None:
        """Move the log start; the batch that holds it stays whole, as on a broker."""
        self.log_start = max(self.log_start, min(before, self.end))
        self.batches = [kept for kept in self.batches if kept.header.last_offset >= self.log_start]

    def compact(self, before: int, now_ms: int) -> None:
        """Let the log cleaner go through everything below `before`."""
        self.batches = compact_log(self, before, now_ms)

    def truncate(self, to: int) -> None:
        """Lose everything from the batch that holds `to` on, as in an unclean election; a new leader epoch."""
        self.batches = [kept for kept in self.batches if kept.header.last_offset < to]
        self.end = self.batches[-1].header.last_offset + 1 if self.batches else min(to, self.end)
        self.epoch_starts = [(epoch, start) for epoch, start in self.epoch_starts if start < self.end]
        self.aborted = [entry for entry in self.aborted if entry[2] < self.end]
        self.producers = FakeProducerStates()
        for kept in self.batches:
            self.producers.appended(kept.header)
        self.leader_epoch += 1
        self.epoch_starts.append((self.leader_epoch, self.end))  # a new leader notes where its epoch begins

    def restart(self) -> None:
        """The broker restarts: a new leader epoch, and of each producer only its newest batch is known."""
        self.leader_epoch += 1
        self.producers.restarted(self.batches[0].header.base_offset if self.batches else self.end)

    def read(self, offset: int, max_bytes: int, committed: bool, whole_first: bool) -> tuple[bytes, int]:
        """(bytes from the batch that holds `offset` on, the offset after them). Cut off at max_bytes, except that
        a first batch larger than that is whole (`whole_first`, KIP-74) or left out."""
        until = self.last_stable() if committed else self.end
        wanted = [kept for kept in self.batches if offset <= kept.header.last_offset < until]
        if not wanted:
            return b"", offset
        if wanted[0].header.size > max_bytes:
            if not whole_first:
                return b"", offset
            return wanted[0].data, wanted[0].header.last_offset + 1
        taken, size = [], 0
        for kept in wanted:
            taken.append(kept)
            size += len(kept.data)
            if size >= max_bytes:
                break
        return b"".join(kept.data for kept in taken)[:max_bytes], taken[-1].header.last_offset + 1

    def aborted_in(self, start: int, until: int) -> tuple[tuple[int, int], ...]:
        """Returns (producer id, first offset) of the aborted transactions that touch start to until."""
        return tuple((pid, first) for pid, first, last in self.aborted if last >= start and first < until)

    def diverging(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) when the log was truncated below `offset` since `epoch` (KIP-320, KIP-595)."""
        number, ends = self.find_epoch_end(epoch)
        return (number, ends) if ends >= 0 and (number < epoch or ends < offset) else None

    def find_epoch_end(self, epoch: int) -> tuple[int, int]:
        """(the newest epoch that is not newer, where it ends); -1, -1: none is known (LeaderEpochFileCache)."""
        known = [(number, start) for number, start in self.epoch_starts if number <= epoch]
        later = [start for other, start in self.epoch_starts if other > epoch]
        if not known and not later:
            return -1, -1
        return known[-1][0] if known else epoch, later[0] if later else self.end

    def offset_for(self, timestamp: int) -> int:
        """First offset whose record is not older than this; -1 when there is none."""
        for kept in self.batches:
            if kept.header.max_timestamp >= timestamp:
                for record in self.records_of(kept):
                    if record.timestamp >= timestamp and record.offset >= self.log_start:
                        return record.offset
        return -1

    def visible(self, committed: bool) -> list[BatchRecord]:
        """What a consumer sees from the log start on."""
        until = self.last_stable() if committed else self.end
        found = []
        for kept in self.batches:
            if kept.header.is_control or (committed and self.is_aborted(kept.header)):
                continue
            found += [record for record in self.records_of(kept) if self.log_start <= record.offset < until]
        return found

    def records_of(self, kept: StoredBatch) -> list[BatchRecord]:
        """Returns the decoded records of a batch, at their offsets."""
        return list(_decode_once(kept.data))

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Whether the batch belongs to a transaction that was aborted."""
        if batch.is_transactional:
            at, of = batch.base_offset, batch.producer_id
            for producer_id, first, last in self.aborted:
                if producer_id == of and first <= at < last:
                    return True
        return False

    def config(self, key: str) -> str:
        """Returns the topic's own value, or Kafka's default. Raises KeyError for an unknown key."""
        return self.configs.get(key) or _DEFAULTS[key]

    def _refusal(self, data: bytes, now_ms: int) -> _AppendRefusal | None:
        """The first broken rule, in the broker's order."""
        try:
            found = list(split_batches(data))
        except ProtocolError as error:
            return _AppendRefusal(INVALID_RECORD, str(error))
        if len(found) != 1 or found[0][0].size != len(data):
            return _AppendRefusal(INVALID_RECORD, "exactly one record batch per partition is expected")
        batch = found[0][0]
        return (
            self._header_refusal(batch, data)
            or _count_refusal(batch)
            or self._content_refusal(batch, data, now_ms)
            or self._size_refusal(data)
        )

    def _header_refusal(self, batch: BatchHeader, data: bytes) -> _AppendRefusal | None:
        if batch.base_offset != 0:
            return _AppendRefusal(INVALID_RECORD, f"the base offset is {batch.base_offset}, 0 is expected")
        if len(data) > int(self.config("max.message.bytes")):
            return _AppendRefusal(MESSAGE_TOO_LARGE, f"{len(data)} bytes exceed max.message.bytes")
        if batch.crc != compute_batch_crc(data):
            return _AppendRefusal(CORRUPT_MESSAGE, "the CRC does not match")
        return None

    def _content_refusal(self, batch: BatchHeader, data: bytes, now_ms: int) -> _AppendRefusal | None:
        if batch.attributes & LOG_APPEND_TIME and self.config("message.timestamp.type") == "LogAppendTime":
            return _AppendRefusal(INVALID_TIMESTAMP, "a client cannot set the log append time")
        newest = now_ms + int(self.config("message.timestamp.after.max.ms"))
        oldest = now_ms - int(self.config("message.timestamp.before.max.ms"))
        create_time = self.config("message.timestamp.type") == "CreateTime"
        if create_time and (batch.max_timestamp > newest or 0 <= batch.base_timestamp < oldest):
            return _AppendRefusal(INVALID_TIMESTAMP, "a timestamp is out of range")
        if batch.codec == CODEC_IDS["zstd"] and "compact" in self.config("cleanup.policy"):
            data = _unpacked(data)
        elif batch.codec > CODEC_IDS["gzip"]:
            return None
        try:
            records = decode_batch_records(data)
        except (ProtocolError, OSError, EOFError) as error:
            return _AppendRefusal(INVALID_RECORD, str(error))
        if create_time and any(record.timestamp > newest or 0 <= record.timestamp < oldest for record in records):
            return _AppendRefusal(INVALID_TIMESTAMP, "a timestamp is out of range")
        if "compact" in self.config("cleanup.policy") and any(record.key is None for record in records):
            return _AppendRefusal(INVALID_RECORD, "a compacted topic needs a key in every record")
        return None

    def _size_refusal(self, data: bytes) -> _AppendRefusal | None:
        if len(data) > int(self.config("segment.bytes")):
            return _AppendRefusal(RECORD_LIST_TOO_LARGE, f"{len(data)} bytes exceed segment.bytes")
        return None


def _count_refusal(batch: BatchHeader) -> _AppendRefusal | None:
    if batch.last_offset_delta < 0:
        return _AppendRefusal(INVALID_RECORD, "the batch has an invalid offset range")
    if batch.count <= 0:
        return _AppendRefusal(INVALID_RECORD, f"invalid reported count {batch.count}")
    if batch.count != batch.last_offset_delta + 1:
        return _AppendRefusal(INVALID_RECORD, "inconsistent batch offset range")
    if batch.is_control:
        return _AppendRefusal(INVALID_RECORD, "clients are not allowed to write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return _AppendRefusal(INVALID_RECORD, f"invalid sequence {batch.base_sequence} with a producer id")
    return None


def _unpacked(data: bytes) -> bytes:
    """A zstd batch without its compression, to be looked into (its CRC is not made anew)."""
    kept = bytearray(data[:RECORD_BATCH_HEADER_BYTES])
    struct.pack_into(">h", kept, BATCH_CRC_START, struct.unpack_from(">h", kept, BATCH_CRC_START)[0] & ~0x07)
    return bytes(kept) + bytes(cramjam.zstd.decompress(data[RECORD_BATCH_HEADER_BYTES:]))


def _stamped(data: bytes, now_ms: int) -> bytes:
    """LogAppendTime: attributes bit 3 and the newest timestamp are the broker's, and so is the CRC."""
    kept = bytearray(data)
    attributes = struct.unpack_from(">h", kept, BATCH_CRC_START)[0] | LOG_APPEND_TIME
    struct.pack_into(">h", kept, BATCH_CRC_START, attributes)
    struct.pack_into(">q", kept, RECORD_BATCH_HEADER_BYTES - 26, now_ms)
    struct.pack_into(">I", kept, 17, compute_batch_crc(kept))
    return bytes(kept)
