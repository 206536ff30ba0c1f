"""Compressing a batch that its source stores uncompressed, before it is sent (`compression` of a flow, decision 0100).

Nothing of the header changes but its codec, its length and its CRC: the target counts the same offsets, and whoever
compares the two logs by their records finds them equal. The records themselves are not looked at.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from watershed.replicator.batch.codecs import CODEC_NAMES, NONE, compress_payload
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, CRC_STARTS_AT
from watershed.replicator.batch.record_batch import CURRENT_MAGIC, MAGIC_BYTE_AT, RawBatch
from watershed.topology.egress_compression import EgressCompression

_FRONT: Final = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_ATTRIBUTES: Final = struct.Struct(">h")
_OLDEST_TIME: Final = 0


def compress_batch(batch: RawBatch, compression: EgressCompression) -> RawBatch:
    """The batch with its records compressed; as it is where it has a codec, or gets no smaller.

    As it is also where its CRC is wrong: the target refuses it then, and a new CRC would hide the damage (decision
    0017). And where its newest record is of 1970: a batch of empty records would look like filler of an aligned copy
    (`replicator.batch.filler_batch`), which nobody carries on.
    """
    data = batch.data
    if batch.codec != NONE or batch.control or data[MAGIC_BYTE_AT] != CURRENT_MAGIC:
        return batch
    if batch.max_timestamp == _OLDEST_TIME or not _is_intact(data):
        return batch
    codec, raw = CODEC_NAMES.index(compression.codec), data[BATCH_HEADER_BYTES:]
    packed = compress_payload(codec, raw, compression.level)
    if len(packed) >= len(raw):
        return batch
    attributes = batch.attributes | codec
    back = _ATTRIBUTES.pack(attributes) + data[CRC_STARTS_AT + _ATTRIBUTES.size : BATCH_HEADER_BYTES]
    base, _length, epoch, magic, _crc = _FRONT.unpack_from(data, 0)
    front = _FRONT.pack(base, BATCH_HEADER_BYTES - 12 + len(packed), epoch, magic, crc32c(packed, crc32c(back)))
    return batch._replace(
        attributes=attributes, data=memoryview(b"".join((front, back, packed))), saved=len(raw) - len(packed)
    )


def _is_intact(data: memoryview) -> bool:
    (_base, _length, _epoch, _magic, crc) = _FRONT.unpack_from(data, 0)
    return bool(crc == crc32c(data[CRC_STARTS_AT:]))
