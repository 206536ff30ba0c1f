"""Logs as the batches they are written in, how records in them are edited, and how they get to a broker as they are."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from watershed.clusters import record_batch
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.raw_batches import append_raw_batches
from watershed.spark.fingerprint import ConsumedRecord

T0 = 1_700_000_000_000
SIZES = (7, 13, 11, 5, 17, 1)  # of batches, again and again: no multiple of 40 is an end of one below 320


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch: its records and what else a writer decides. producer: id, epoch and first sequence number."""

    records: tuple[ConsumedRecord, ...]
    codec: str = "none"
    producer: tuple[int, int, int] = (-1, -1, -1)

    def raw(self) -> bytes:
        rows = [
            record_batch.BatchRecord(
                at, r.timestamp, r.key, r.value, tuple((str(name), value) for name, value in r.headers)
            )
            for at, r in enumerate(self.records)
        ]
        id_, epoch, sequence = self.producer
        return record_batch.build_batch(rows, codec=self.codec, producer_id=id_, epoch=epoch, base_sequence=sequence)


Log = tuple[Packed, ...]


def a_log(number: int, count: int) -> list[ConsumedRecord]:
    """Records that no log of another number has. Among the first hundred: empty and null keys and values (50 to 53),
    two headers (55), a header of null (56), no header (57), and twice the same (90, 91)."""
    chance = random.Random(number)
    found = [
        ConsumedRecord(
            b"k%d" % (i % 7),
            b"value %d of %d" % (i, number) + b"." * chance.randrange(40),
            T0 + i,
            (("n", b"%d of %d" % (i, number)),),
        )
        for i in range(count)
    ]
    odd: dict[int, dict[str, Any]] = {
        50: {"value": b""},
        51: {"key": b""},
        52: {"value": None},
        53: {"key": None},
        55: {"headers": (("a", b"1"), ("b", b"2"))},
        56: {"headers": (("n", None),)},
        57: {"headers": ()},
    }
    for at, fields in odd.items():
        if at < count:
            found[at] = replace(found[at], **fields)
    if count > 91:
        found[91] = found[90]
    return found


def packed(records: Sequence[ConsumedRecord], sizes: Iterable[int] = SIZES, codec: str = "none") -> Log:
    """`records` in batches of these sizes, over and over."""
    sizes = tuple(sizes)
    ends = accumulate(sizes * (len(records) // sum(sizes) + 1), initial=0)
    cuts = [tuple(records[a:b]) for a, b in pairwise(ends)]
    return tuple(Packed(cut, codec) for cut in cuts if cut)


def records_of(log: Log) -> list[ConsumedRecord]:
    return [record for batch in log for record in batch.records]


def place(log: Log, number: int) -> tuple[int, int]:
    """(which batch, which record in it) of the record of that number; one behind the last is in the last batch."""
    for at, batch in enumerate(log):
        if number < len(batch.records):
            return at, number
        number -= len(batch.records)
    return len(log) - 1, len(log[-1].records) + number


def edited(log: Log, number: int, *records: ConsumedRecord, instead_of: int = 1) -> Log:
    """With `records` in place of `instead_of` records from `number` on, within its batch."""
    at, within = place(log, number)
    kept = log[at].records
    now = (*kept[:within], *records, *kept[within + instead_of :])
    return (*log[:at], *([replace(log[at], records=now)] if now else []), *log[at + 1 :])


def changed(log: Log, number: int, **fields: Any) -> Log:
    return edited(log, number, replace(records_of(log)[number], **fields))


def append(settings: ConnectionSettings, topic: str, logs: Mapping[int, Log]) -> None:
    """Writes every batch as it is behind its partition's end, partition → batches. For clusters of one broker."""
    append_raw_batches(settings, topic, {number: [each.raw() for each in log] for number, log in logs.items()})
