"""The state of a compacted partition: the last record of every key. A tombstone means that the key is absent.

The cleaner works on each side for itself, so two logs with the same state may hold different records: what was
overwritten is gone on one side and there on the other, and so are tombstones. Where the chunks of a compacted topic
differ, keys are compared in their place:

- *missing*: the source has the key, the target does not. *foreign*: the other way round; also a key whose tombstone
  never came. *altered*: both have it, with different last records, named by the components that differ.
- *pending*: it differs, and it was written again behind the window on one of the sides: what stood in the window may
  have been cleaned away there for that.
- *quarantined*: the target lacks the key's last record, which is kept in its quarantine.
- *unverifiable*: one side does not have it, and where the other has it the log has expired there (`compact,delete`).

Pure: arrays in, counts out. Keys are told by their hash (`spark.fingerprint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from watershed.spark.fingerprint import ConsumedRecord, RecordFingerprints, fingerprint_records, join_fingerprints
from watershed.spark.judging.record_difference import (
    COMPONENT_COLUMNS,
    DifferenceExample,
    RecordDifference,
    build_example,
    order_components,
)
from watershed.spark.reading.range_requests import QuarantinedOffset
from watershed.spark.reading.xxh64 import I64, U64

_NOTHING = fingerprint_records([ConsumedRecord(None, None, 0)])
_NO_KEY = int(_NOTHING.kh[0])
_TOMBSTONE = int(_NOTHING.vh[0])

RewrittenKeys = Callable[[U64], npt.NDArray[np.bool_]]  # hashes of keys → which of them were written behind the window


@dataclass(frozen=True, slots=True)
class KeyState:
    """The last record of every key. `kh` (the key's hash) rises; all columns have shape (n,).

    ts: the timestamps that are compared, in ms; times: as stored, which examples show (see `RecordFingerprints.times`).
    keyless: number of records without a key, which have no place in a state.
    """

    kh: U64
    offset: I64
    fp: U64
    vh: U64
    hh: U64
    ts: I64
    times: I64
    keyless: int = 0

    def __len__(self) -> int:
        return len(self.kh)

    def at(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_], keyless: int = 0) -> KeyState:
        """The keys at these indices, or under this mask."""
        return KeyState(
            self.kh[index],
            self.offset[index],
            self.fp[index],
            self.vh[index],
            self.hh[index],
            self.ts[index],
            self.times[index],
            keyless,
        )

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Mask of the keys whose last record is no tombstone, shape (n,)."""
        return np.asarray(self.vh != np.uint64(_TOMBSTONE))


class KeyStateDifference(NamedTuple):
    """keyless: records without a key, on source and target."""

    difference: RecordDifference
    keyless: tuple[int, int] = (0, 0)


def find_last_by_key(prints: RecordFingerprints) -> KeyState:
    """The state after these records, which stand in log order."""
    keyed = prints.kh != np.uint64(_NO_KEY)
    keyless = len(prints) - int(keyed.sum())
    _, first = np.unique(prints.kh[keyed][::-1], return_index=True)
    last = np.flatnonzero(keyed)[len(prints) - keyless - 1 - first]
    return _build_state(prints).at(last, keyless)


def _build_state(prints: RecordFingerprints) -> KeyState:
    return KeyState(prints.kh, prints.offset, prints.fp, prints.vh, prints.hh, prints.ts, prints.times)


def join_key_states(parts: Sequence[KeyState]) -> KeyState:
    """The state after several parts of a log, given in any order."""
    if not parts:
        return _build_state(join_fingerprints(()))
    joined = KeyState(
        np.concatenate([part.kh for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.fp for part in parts]),
        np.concatenate([part.vh for part in parts]),
        np.concatenate([part.hh for part in parts]),
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.times for part in parts]),
    )
    order = np.lexsort((joined.offset, joined.kh))
    kh = joined.kh[order]
    last = order[np.append(kh[1:] != kh[:-1], True)] if len(kh) else order
    return joined.at(last, sum(part.keyless for part in parts))


def split_by_key_hash(keyed: KeyState, buckets: int) -> list[KeyState]:
    """One state a bucket, by the keys' hashes, so that equal keys meet; keyless records count in the first."""
    bucket = keyed.kh % np.uint64(buckets)
    return [keyed.at(bucket == np.uint64(number), 0 if number else keyed.keyless) for number in range(buckets)]


def compare_key_states(
    source: KeyState,
    target: KeyState,
    rewritten: RewrittenKeys,
    *,
    low: tuple[int, int] = (-1, -1),
    in_place: bool = False,
    kept: Mapping[int, QuarantinedOffset] = MappingProxyType({}),
    limit: int,
) -> KeyStateDifference:
    """The difference of two states in numbers of keys; keys that are absent on both sides do not count.

    rewritten is asked only of keys that differ. low: offsets on source and target below which the *other* side has
    expired. in_place: equal records stand at equal offsets. kept: by source offset. limit: as in `compare_records`.
    """
    _, i, j = np.intersect1d(source.kh, target.kh, assume_unique=True, return_indices=True)
    one, two = source.at(i), target.at(j)
    both = one.alive & two.alive
    same = both & (one.fp == two.fp) & ((one.offset == two.offset) | (not in_place))
    only = np.ones(len(source), dtype=np.bool_)
    only[i] = False
    more = np.ones(len(target), dtype=np.bool_)
    more[j] = False
    rows: list[tuple[str, int, int]] = []  # kind, index in source, index in target (-1: none)
    rows += [("missing", int(n), -1) for n in np.flatnonzero(only & source.alive)]
    rows += [("missing", int(i[n]), int(j[n])) for n in np.flatnonzero(one.alive & ~two.alive)]
    rows += [("altered", int(i[n]), int(j[n])) for n in np.flatnonzero(both & ~same)]
    rows += [("foreign", int(i[n]), int(j[n])) for n in np.flatnonzero(~one.alive & two.alive)]
    rows += [("foreign", -1, int(n)) for n in np.flatnonzero(more & target.alive)]
    keys = np.array([source.kh[s] if s >= 0 else target.kh[t] for _, s, t in rows], dtype=np.uint64)
    later = rewritten(keys) if rows else np.empty(0, dtype=np.bool_)
    counts = {"missing": 0, "altered": 0, "foreign": 0, "pending": 0, "unverifiable": 0, "quarantined": 0}
    examples: list[DifferenceExample] = []
    named: dict[str, int] = {}
    components: set[str] = set()
    for (kind, s, t), is_later in zip(rows, later.tolist(), strict=True):
        gone = (kind == "missing" and source.offset[s] < low[0]) or (kind == "foreign" and target.offset[t] < low[1])
        word = "pending" if is_later else "unverifiable" if gone else kind
        entry = kept.get(int(source.offset[s])) if kind in ("missing", "altered") else None
        if entry is not None and entry.matches(int(source.fp[s])):
            word = "quarantined"
        counts[word] += 1
        if word in ("pending", "unverifiable"):
            continue
        differ = _components(source, s, target, t, in_place) if word == "altered" else ()
        components.update(differ)
        named[word] = named.get(word, 0) + 1
        if named[word] <= limit:
            examples.append(build_example(word, source if s >= 0 else None, s, target if t >= 0 else None, t, differ))
    difference = RecordDifference(
        proven=int(same.sum()),
        missing=counts["missing"],
        altered=counts["altered"],
        foreign=counts["foreign"],
        pending=counts["pending"],
        unverifiable=counts["unverifiable"],
        quarantined=counts["quarantined"],
        components=order_components([tuple(components)]),
        examples=tuple(examples),
    )
    return KeyStateDifference(difference, (source.keyless, target.keyless))


def add_key_differences(parts: Sequence[KeyStateDifference], limit: int) -> KeyStateDifference:
    """The difference of a partition from those of its buckets. limit: how many examples."""
    differences = [part.difference for part in parts]
    whole = RecordDifference(
        proven=sum(d.proven for d in differences),
        missing=sum(d.missing for d in differences),
        altered=sum(d.altered for d in differences),
        foreign=sum(d.foreign for d in differences),
        pending=sum(d.pending for d in differences),
        unverifiable=sum(d.unverifiable for d in differences),
        quarantined=sum(d.quarantined for d in differences),
        components=order_components(d.components for d in differences),
        examples=tuple(e for d in differences for e in d.examples)[:limit],
    )
    keyless = sum(part.keyless[0] for part in parts), sum(part.keyless[1] for part in parts)
    return KeyStateDifference(whole, keyless)


def _components(source: KeyState, s: int, target: KeyState, t: int, in_place: bool) -> tuple[str, ...]:
    columns = [*list(COMPONENT_COLUMNS.items())[1:], *([("offset", "offset")] if in_place else [])]
    return tuple(name for name, column in columns if getattr(source, column)[s] != getattr(target, column)[t])
