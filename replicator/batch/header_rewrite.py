"""Header rewriting: what makes a batch of one cluster a batch of another without touching its payload.

A v2 batch starts with 61 bytes; the CRC-32C covers everything from byte 21 on. CRC is affine, so the new CRC
follows from the old one and the 40 changed bytes alone. That is not only cheaper: a payload that was damaged on
the way keeps a wrong CRC and is refused by the target, where a recomputed CRC would launder it.

Source: org.apache.kafka.common.record.DefaultRecordBatch; broker rules in docs/research/batches.md, §1.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from crc32c import crc32c

BATCH_HEADER_BYTES: Final = 61
CRC_STARTS_AT: Final = 21  # the first byte that the CRC covers
SEQUENCE_SPACE: Final = 1 << 31
NO_PRODUCER_ID: Final = -1

_FRONT = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BACK = struct.Struct(">hiqqqhii")  # attributes … record count: the 40 bytes that we may change
_CODEC = 0x07  # all that is kept of the attributes: no transaction, no control, no delete horizon
_TRANSACTIONAL = 0x10


def rewrite_header(
    header: bytes | memoryview, *, producer_id: int, epoch: int, sequence: int, transactional: bool = False
) -> bytes:
    """The 61 bytes to send instead of `header` (base offset 0, leader epoch -1, our producer id and sequence).
    transactional: the batch is written in a transaction of ours, whatever it was on the source.

    Timestamps, record count and `lastOffsetDelta` stay: with a changed `lastOffsetDelta` the broker would accept
    an uncompressed batch and corrupt its log. `sequence` is taken mod 2³¹ by the caller.
    """
    if producer_id < 0 or epoch < 0 or not 0 <= sequence < SEQUENCE_SPACE:
        raise ValueError(f"no producer identity: id {producer_id}, epoch {epoch}, sequence {sequence}")
    return _rewrite(header, producer_id, epoch, sequence, transactional)


def remove_producer(header: bytes | memoryview) -> bytes:
    """The 61 bytes to send instead of `header` where the target takes no idempotent producers: id, epoch and sequence
    are -1, as in the batches of every producer without `enable.idempotence`."""
    return _rewrite(header, NO_PRODUCER_ID, -1, -1, False)


def _rewrite(header: bytes | memoryview, producer_id: int, epoch: int, sequence: int, transactional: bool) -> bytes:
    _base, length, _epoch, magic, crc = _FRONT.unpack_from(header, 0)
    old = bytes(header[CRC_STARTS_AT:BATCH_HEADER_BYTES])
    attributes, last_delta, base_time, max_time, _pid, _pepoch, _seq, count = _BACK.unpack(old)
    kept = attributes & _CODEC | _TRANSACTIONAL * transactional
    new = _BACK.pack(kept, last_delta, base_time, max_time, producer_id, epoch, sequence, count)
    payload = length + 12 - BATCH_HEADER_BYTES  # the length field counts from byte 12 on
    return _FRONT.pack(0, length, -1, magic, crc ^ _shifted(crc32c(old) ^ crc32c(new), payload)) + new


def _shifted(difference: int, zero_bytes: int) -> int:
    """The CRC difference after `zero_bytes` more bytes that are equal on both sides."""
    power = 0
    while zero_bytes:
        if zero_bytes & 1:
            a, b, c, d = _operator(power)
            difference = (
                a[difference & 0xFF] ^ b[difference >> 8 & 0xFF] ^ c[difference >> 16 & 0xFF] ^ d[difference >> 24]
            )
        zero_bytes >>= 1
        power += 1
    return difference


@cache
def _operator(power: int) -> tuple[list[int], ...]:
    """Four tables that together advance a CRC over 2**power zero bytes (multiplication in GF(2)[x] mod P)."""
    if power == 0:
        table = []
        for byte in range(256):
            crc = byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli, reflected
            table.append(crc)
        return (
            table,
            *([(byte << shift) for byte in range(256)] for shift in (0, 8, 16)),
        )
    a, b, c, d = before = _operator(power - 1)
    return tuple([a[v & 0xFF] ^ b[v >> 8 & 0xFF] ^ c[v >> 16 & 0xFF] ^ d[v >> 24] for v in table] for table in before)
