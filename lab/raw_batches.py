"""Batches written as they are, past every client: any producer id, any codec, any content.

For tests and attacks, on clusters of one broker.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import cramjam
import crc32c

from watershed.clusters.admin import Admin
from watershed.clusters.record_batch import (
    BATCH_CRC_START,
    CODEC_IDS,
    RECORD_BATCH_HEADER_BYTES,
    BatchRecord,
    build_batch,
)
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.varints import encode_zigzag
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import ProducePartition
from watershed.lab.errors import LabError

_CHUNK = 1 << 20


def append_raw_batches(settings: ConnectionSettings, topic: str, batches: Mapping[int, Sequence[bytes]]) -> None:
    """Write each batch as it is at its partition's end, partition → batches. Raises LabError when a broker refuses."""
    with Admin(settings) as admin:
        found = admin.topic(topic)
    if found is None:
        raise LabError(f"cluster {settings.alias} has no topic {topic}; create it first")
    link = open_connection(settings)
    try:
        for turn in range(max(map(len, batches.values()), default=0)):
            now = {number: each[turn] for number, each in batches.items() if turn < len(each)}
            link.send_produce(tuple(ProducePartition(found.topic_id, number, (raw,)) for number, raw in now.items()))
            for answer in link.receive_produce():
                if answer.error:
                    raise LabError(
                        f"{topic}-{answer.partition} on cluster {settings.alias} did not take batch {turn}: {answer}"
                    )
    finally:
        link.close()


def build_zstd_bomb(value_bytes: int, timestamp: int) -> bytes:
    """A batch of one record whose value is so many zeros: a few KB that open to all of them. Built piece by piece."""
    head = b"\0" + encode_zigzag(0) + encode_zigzag(0) + encode_zigzag(-1) + encode_zigzag(value_bytes)
    tail = encode_zigzag(0)  # no headers
    packer = cramjam.zstd.Compressor()
    packer.compress(encode_zigzag(len(head) + value_bytes + len(tail)) + head)
    zeros = bytes(_CHUNK)
    for at in range(0, value_bytes, _CHUNK):
        packer.compress(zeros[: value_bytes - at])
    packer.compress(tail)
    plain = build_batch([BatchRecord(0, timestamp, None, b"")])
    return _with_body(plain, "zstd", bytes(packer.finish()))


def _with_body(batch: bytes, codec: str, body: bytes) -> bytes:
    """The same header around another body: length, codec and CRC fit."""
    made = bytearray(batch[:RECORD_BATCH_HEADER_BYTES] + body)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(
        ">h", made, BATCH_CRC_START, struct.unpack_from(">h", made, BATCH_CRC_START)[0] & ~0x07 | CODEC_IDS[codec]
    )
    struct.pack_into(">I", made, BATCH_CRC_START - 4, crc32c.crc32c(memoryview(made)[BATCH_CRC_START:]))
    return bytes(made)
