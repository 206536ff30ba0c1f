"""Every way to spoil the copy of a log, and what the proof has to say of it.

A mutation makes another log out of the copy of `a_log` (200 records, batches that stand over all cuts of 40); `other`
is the log of another partition. What it has to be called follows from these rules (spark/difference, docs/proof.md):
the fewest records that would have to move are reordered; a record that changed in value only, or kept its value and
one more of key, headers and timestamp, is altered, and any other change makes one missing and one foreign; source
records behind the last one that arrived are pending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.spark.logs import SIZES, Log, Packed, changed, edited, packed, place, records_of
from watershed.spark.fingerprint import ConsumedRecord

COUNT = 200
CHUNK = 40
KINDS = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "pending")
STRANGE = ConsumedRecord(b"x", b"nobody's", 1_600_000_000_000)


@dataclass(frozen=True, slots=True)
class Mutation:
    """apply: (copy, other) → what stands on the target. found: classes and numbers of records. components: of those
    altered."""

    name: str
    apply: Callable[[Log, Log], Log]
    found: dict[str, int] = field(default_factory=dict)
    components: tuple[str, ...] = ()

    @property
    def proven(self) -> int:
        return COUNT - sum(self.found.get(kind, 0) for kind in ("missing", "altered", "reordered", "pending"))


def by_batches(source: Log, target: Log) -> set[int]:
    """The chunks that are equal batch by batch, told from where batches begin: both sides hold the same, and wholly in
    the window. If the first chunk is not, the copy is taken for packed otherwise, and no other is looked at so."""
    end = min(COUNT, sum(len(batch.records) for batch in target))
    last = max(0, -(-end // CHUNK) - 1)
    sides: tuple[dict[int, list[object]], dict[int, list[object]]] = ({}, {})
    for log, chunks in zip((source, target), sides, strict=True):
        base = 0
        for batch in log:
            behind = base + len(batch.records)
            whole = log is target or behind <= end
            if base < end or log is target:
                chunks.setdefault(min(base // CHUNK, last), []).append((batch.records, batch.codec) if whole else None)
            base = behind
    equal = {n for n, batches in sides[0].items() if None not in batches and batches == sides[1].get(n)}
    return equal if 0 in equal else set()


def _without(log: Log, first: int, end: int) -> Log:
    for number in reversed(range(first, end)):
        log = edited(log, number)
    return log


def _again(log: Log, number: int, times: int = 1) -> Log:
    record = records_of(log)[number]
    return edited(log, number, *[record] * (times + 1))


def _swapped(log: Log, one: int, two: int) -> Log:
    a, b = records_of(log)[one], records_of(log)[two]
    return edited(edited(log, one, b), two, a)


def _moved(log: Log, number: int, to: int) -> Log:
    record = records_of(log)[number]
    return edited(edited(log, to, record, instead_of=0), number)


def _flipped(content: bytes | str | None) -> bytes:
    raw = content.encode() if isinstance(content, str) else content or b""
    return raw[:-1] + bytes([raw[-1] ^ 1])


def _at(log: Log, number: int) -> ConsumedRecord:
    return records_of(log)[number]


def _all(log: Log, change: Callable[[ConsumedRecord], ConsumedRecord]) -> Log:
    return tuple(replace(batch, records=tuple(map(change, batch.records))) for batch in log)


def _made_strange(r: ConsumedRecord) -> ConsumedRecord:
    return ConsumedRecord(
        b"x" + (r.key or b""), b"y" + (r.value or b""), r.timestamp - 1_000_000, (("z", b"%d" % r.timestamp),)
    )


def _batch_again(log: Log, at: int, end: int | None = None) -> Log:
    end = at + 1 if end is None else end
    return (*log[:end], *log[at:end], *log[end:])


def _split(log: Log) -> Log:
    halves = [(batch.records[:3], batch.records[3:]) for batch in log]
    return tuple(Packed(part) for pair in halves for part in pair if part)


def _from_another_producer(log: Log) -> Log:
    found, sequence = [], 0
    for batch in log:
        found.append(replace(batch, producer=(4_000_001, 3, sequence)))
        sequence += len(batch.records)
    return tuple(found)


def _mixed(log: Log, other: Log) -> Log:
    """Batches of two flows in turn, up to half of the other's; then the rest of the first."""
    half = len(other) // 2
    mixed = [batch for pair in zip(log[:half], other[:half], strict=True) for batch in pair]
    return (*mixed, *log[half:])


def _other_half(log: Log, _other: Log) -> Log:
    at, _ = place(log, COUNT // 2)
    return (*log[:at], *packed(records_of(log[at:]), SIZES, "gzip"))


HALF_OF_OTHER = sum(len(batch.records) for batch in packed([STRANGE] * COUNT)[: len(packed([STRANGE] * COUNT)) // 2])
ONE_LOST = {"missing": 1}
M = Mutation

CLEAN = (
    M("as it is", lambda r, _: r),
    M("from another producer, in sequence", lambda r, _: _from_another_producer(r)),
    M("recompressed", lambda r, _: tuple(replace(batch, codec="gzip") for batch in r)),
    M("half of it recompressed", _other_half),
    M("batches merged", lambda r, _: packed(records_of(r), (50,))),
    M("batches split", lambda r, _: _split(r)),
    M("a batch a record", lambda r, _: packed(records_of(r), (1,))),
    M("all in one batch", lambda r, _: packed(records_of(r), (COUNT,), "gzip")),
)

LOST = (
    M("one lost", lambda r, _: edited(r, 60), ONE_LOST),
    M("first lost", lambda r, _: edited(r, 0), ONE_LOST),
    M("last lost", lambda r, _: edited(r, COUNT - 1), {"pending": 1}),
    M("tail truncated", lambda r, _: _without(r, 170, COUNT), {"pending": 30}),
    M("nothing there", lambda _, __: (), {"pending": COUNT}),
    M("a chunk lost", lambda r, _: _without(r, 40, 80), {"missing": 40}),
    M("a batch lost", lambda r, _: (*r[:7], *r[8:]), {"missing": SIZES[1]}),
    M("a batch over a cut lost", lambda r, _: (*r[:4], *r[5:]), {"missing": SIZES[4]}),
    M("every tenth lost", lambda r, _: packed([x for i, x in enumerate(records_of(r)) if i % 10]), {"missing": 20}),
    M("first and last of a chunk lost", lambda r, _: edited(edited(r, 79), 40), {"missing": 2}),
    M("one of two equal ones lost", lambda r, _: edited(r, 91), ONE_LOST),
    M("moved to another partition", lambda r, _: edited(r, 77), ONE_LOST),
)

EXTRA = (
    M(
        "moved from another partition",
        lambda r, o: edited(r, 99, _at(o, 77), instead_of=0),
        {"foreign": 1},
    ),
    M("twice", lambda r, _: _again(r, 60), {"duplicates": 1}),
    M("three times", lambda r, _: _again(r, 60, 2), {"duplicates": 2}),
    M("equal ones once more", lambda r, _: _again(r, 91), {"duplicates": 1}),
    M("first again at the end", lambda r, _: (*r, Packed((_at(r, 0),))), {"duplicates": 1}),
    M("last again at the end", lambda r, _: (*r, Packed((_at(r, COUNT - 1),))), {"duplicates": 1}),
    M("a batch twice, by a retry", lambda r, _: _batch_again(r, 2), {"duplicates": SIZES[2]}),
    M("a batch over a cut twice", lambda r, _: _batch_again(r, 8), {"duplicates": SIZES[2]}),
    M("four batches twice", lambda r, _: _batch_again(r, 6, 10), {"duplicates": sum(SIZES[:4])}),
    M("one lost, one twice", lambda r, _: edited(_again(r, 61), 20), {"missing": 1, "duplicates": 1}),
    M("one lost, one twice, far apart", lambda r, _: edited(_again(r, 190), 20), {"missing": 1, "duplicates": 1}),
    M(
        "one lost, a strange one there",
        lambda r, _: edited(r, 70, STRANGE),
        {"missing": 1, "foreign": 1},
    ),
    M("strange at the head", lambda r, _: (Packed((STRANGE,)), *r), {"foreign": 1}),
    M("strange inside", lambda r, _: edited(r, 9, STRANGE, instead_of=0), {"foreign": 1}),
    M("strange at a cut", lambda r, _: edited(r, 40, STRANGE, instead_of=0), {"foreign": 1}),
    M("strange at the tail", lambda r, _: (*r, Packed((STRANGE,))), {"foreign": 1}),
    M("two flows mixed", _mixed, {"foreign": HALF_OF_OTHER}),
    M("another log", lambda r, _: _all(r, _made_strange), {"pending": COUNT, "foreign": COUNT}),
)

ALTERED = (
    M("bit of a key", lambda r, _: changed(r, 70, key=_flipped(_at(r, 70).key)), {"altered": 1}, ("key",)),
    M("bit of a value", lambda r, _: changed(r, 70, value=_flipped(_at(r, 70).value)), {"altered": 1}, ("value",)),
    M(
        "bit of a header's name",
        lambda r, _: changed(r, 70, headers=(("o", _at(r, 70).headers[0][1]),)),
        {"altered": 1},
        ("headers",),
    ),
    M(
        "bit of a header's value",
        lambda r, _: changed(r, 70, headers=(("n", _flipped(_at(r, 70).headers[0][1])),)),
        {"altered": 1},
        ("headers",),
    ),
    M("empty value null", lambda r, _: changed(r, 50, value=None), {"altered": 1}, ("value",)),
    M("null value empty", lambda r, _: changed(r, 52, value=b""), {"altered": 1}, ("value",)),
    M("empty key null", lambda r, _: changed(r, 51, key=None), {"altered": 1}, ("key",)),
    M("null key empty", lambda r, _: changed(r, 53, key=b""), {"altered": 1}, ("key",)),
    M(
        "key and null value exchanged",
        lambda r, _: changed(r, 52, key=None, value=_at(r, 52).key),
        {"missing": 1, "foreign": 1},
        (),
    ),
    M(
        "headers in another order",
        lambda r, _: changed(r, 55, headers=_at(r, 55).headers[::-1]),
        {"altered": 1},
        ("headers",),
    ),
    M("a header twice", lambda r, _: changed(r, 70, headers=_at(r, 70).headers * 2), {"altered": 1}, ("headers",)),
    M("a header lost", lambda r, _: changed(r, 70, headers=()), {"altered": 1}, ("headers",)),
    M("a header more", lambda r, _: changed(r, 57, headers=(("n", b""),)), {"altered": 1}, ("headers",)),
    M("null header empty", lambda r, _: changed(r, 56, headers=(("n", b""),)), {"altered": 1}, ("headers",)),
    M("1 ms later", lambda r, _: changed(r, 70, timestamp=_at(r, 70).timestamp + 1), {"altered": 1}, ("timestamp",)),
    M("1 ms earlier", lambda r, _: changed(r, 70, timestamp=_at(r, 70).timestamp - 1), {"altered": 1}, ("timestamp",)),
    M("wrong partition's key", lambda r, _: changed(r, 73, key=b"k99"), {"altered": 1}, ("key",)),
    M(
        "a value cut short",
        lambda r, _: changed(r, 70, value=(_at(r, 70).value or b"")[:-1]),
        {"altered": 1},
        ("value",),
    ),
    M("first altered", lambda r, _: changed(r, 0, value=b"!"), {"altered": 1}, ("value",)),
    M("last altered", lambda r, _: changed(r, COUNT - 1, value=b"!"), {"altered": 1}, ("value",)),
    M(
        "values of two exchanged",
        lambda r, _: changed(changed(r, 66, value=_at(r, 64).value), 64, value=_at(r, 66).value),
        {"altered": 2},
        ("value",),
    ),
    M(
        "all a ms later",
        lambda r, _: _all(r, lambda x: replace(x, timestamp=x.timestamp + 1)),
        {"altered": COUNT},
        ("timestamp",),
    ),
    M("all keys lost", lambda r, _: _all(r, lambda x: replace(x, key=b"-")), {"altered": COUNT}, ("key",)),
)

ORDER = (
    M("neighbours swapped", lambda r, _: _swapped(r, 10, 11), {"reordered": 1}),
    M("swapped over a cut", lambda r, _: _swapped(r, 39, 40), {"reordered": 1}),
    M("swapped far apart", lambda r, _: _swapped(r, 10, 170), {"reordered": 2}),
    M("moved far back", lambda r, _: _moved(r, 10, 170), {"reordered": 1}),
    M("moved far ahead", lambda r, _: edited(edited(r, 170), 10, _at(r, 170), instead_of=0), {"reordered": 1}),
    M("two batches swapped", lambda r, _: (*r[:2], r[3], r[2], *r[4:]), {"reordered": SIZES[3]}),
    M("a batch moved over a chunk", lambda r, _: (*r[:2], *r[3:9], r[2], *r[9:]), {"reordered": SIZES[2]}),
    M("a batch backwards", lambda r, _: (*r[:7], replace(r[7], records=r[7].records[::-1]), *r[8:]), {"reordered": 12}),
)

MUTATIONS = (*CLEAN, *LOST, *EXTRA, *ALTERED, *ORDER)
