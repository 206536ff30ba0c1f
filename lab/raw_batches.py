"""Batches written as they are, past every client: any producer id, any codec, any content.

For tests and attacks, on clusters of one broker.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import cramjam
import crc32c

from clusters.admin import Admin
from clusters.batches import CODECS, CRC_FROM, HEADER_SIZE, Record, build_batch
from clusters.settings import ConnectionSettings
from clusters.varints import zigzag
from clusters.wire.connection import connect
from clusters.wire.messages import ProducePartition
from lab.errors import LabError

_CHUNK = 1 << 20


def append_batches(settings: ConnectionSettings, topic: str, batches: Mapping[int, Sequence[bytes]]) -> None:
    """Write each batch as it is at its partition's end, partition → batches. Raises LabError when a broker refuses."""
    with Admin(settings) as admin:
        found = admin.topic(topic)
    if found is None:
        raise LabError(f"cluster {settings.alias} has no topic {topic}; create it first")
    link = connect(settings)
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


def zstd_batch(value_bytes: int, timestamp: int) -> bytes:
    """A batch of one record whose value is so many zeros: a few KB that open to all of them. Built piece by piece."""
    head = b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(value_bytes)
    tail = zigzag(0)  # no headers
    packer = cramjam.zstd.Compressor()
    packer.compress(zigzag(len(head) + value_bytes + len(tail)) + head)
    zeros = bytes(_CHUNK)
    for at in range(0, value_bytes, _CHUNK):
        packer.compress(zeros[: value_bytes - at])
    packer.compress(tail)
    plain = build_batch([Record(0, timestamp, None, b"")])
    return _with_body(plain, "zstd", bytes(packer.finish()))


def _with_body(batch: bytes, codec: str, body: bytes) -> bytes:
    """The same header around another body: length, codec and CRC fit."""
    made = bytearray(batch[:HEADER_SIZE] + body)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, CRC_FROM, struct.unpack_from(">h", made, CRC_FROM)[0] & ~0x07 | CODECS[codec])
    struct.pack_into(">I", made, CRC_FROM - 4, crc32c.crc32c(memoryview(made)[CRC_FROM:]))
    return bytes(made)
