"""The values of the sample applications: compact JSON that says which record it is.

    {"app":"orders","topic":"orders.eu","key":17,"n":5,"at":1795253657787,"pad":"…"}

(app, topic, key) is a series; its records are numbered 1, 2, 3 … in the order of sending. `topic` is where the
record was born, so that a copy under another name is still the same record.
"""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

MAX_TOPIC_KEYS = 1 << 20  # most keys of a topic: the account packs key and number into one integer
_PADDING = (b"the quick brown fox jumps over the lazy dog while rivers part at the watershed; " * 64)[:4096]


class _NumberedValue(NamedTuple):
    """Which record a value is."""

    app: str
    topic: str
    key: int
    number: int


def encode_numbered_value(app: str, topic: str, key: int, number: int, at_ms: int, size: int = 120) -> bytes:
    """A value of about `size` bytes (never shorter than its fields); the padding differs between records."""
    head = f'{{"app":"{app}","topic":"{topic}","key":{key},"n":{number},"at":{at_ms},"pad":"'.encode()
    start = (key + number) % 80
    return b'%s%s"}' % (head, _PADDING[start : start + max(0, size - len(head) - 2)])


def decode_numbered_value(value: bytes) -> _NumberedValue:
    """Raises ValueError when the value is not one of ours."""
    try:
        fields = json.loads(value)
        return _NumberedValue(fields["app"], fields["topic"], fields["key"], fields["n"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a value of the sample applications: {value[:80]!r}") from error


def encode_key(key: int) -> bytes:
    """The record key of key number `key`."""
    return b"key-%d" % key


def choose_partition(key: int, partitions: int) -> int:
    """Where librdkafka's `consistent` partitioner puts the key: CRC-32 modulo the number of partitions."""
    return zlib.crc32(encode_key(key)) % partitions
