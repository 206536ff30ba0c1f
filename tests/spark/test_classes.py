"""Random logs, random edits: what a proof reports is what an oracle says, which compares by brute force.

Every record of a log is another one, so an edit has one meaning. Where several explanations are equally short the
oracle has these rules: *reordered* is the number of common records less a longest common subsequence; a record that was
edited in one component is *altered*, but where others were put elsewhere it may be told as one missing and one foreign
(it no longer stands between the same neighbours); source records behind the last that arrived are *pending*. In an
aligned copy only offsets count: whatever stands at another one is altered.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.spark.logs import Log, Packed, records_of
from tests.spark.memory import Stored
from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window

PLACE = PartitionPair("onprem-to-cloud", "t", "t", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))
COMPONENTS = ("key", "value", "headers", "timestamp")


def record(number: int) -> ConsumedRecord:
    """Agrees with no other in anything."""
    raw = b"%d" % number
    return ConsumedRecord(b"k" + raw, b"v" + raw, 1_700_000_000_000 + number, (("n", raw),))


def altered(number: int, component: str) -> ConsumedRecord:
    """That record with one component of another one that is nowhere else."""
    return replace(record(number), **{component: getattr(record(10_000 + number), component)})


@dataclass(frozen=True)
class Case:
    """A log and its copy in batches, and the numbers of the records that were altered, with the component. in_line: no
    record was put anywhere else."""

    source: Log
    target: Log
    altered: dict[int, str]
    in_line: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Records are kept, lost, doubled, altered or moved, strange ones come in; batches stay as they are but for that,
    or all are packed anew."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=9))
    numbers = count()
    batches = [[next(numbers) for _ in range(size)] for size in sizes]
    change = st.sampled_from(
        ("keep",) * draw(st.sampled_from((1, 8, 30))) + ("lose", "double", "alter", "move", "strange")
    )
    found: dict[int, str] = {}
    copies: list[list[ConsumedRecord]] = []
    astray: list[ConsumedRecord] = []
    for batch in batches:
        copy: list[ConsumedRecord] = []
        for number in batch:
            how = draw(change)
            if how == "alter":
                found[number] = draw(st.sampled_from(COMPONENTS))
                copy.append(altered(number, found[number]))
            elif how == "move":
                astray.append(record(number))
            elif how != "lose":
                copy += [record(number)] * (2 if how == "double" else 1)
            if how == "strange":
                copy.append(record(20_000 + number))
            if how == "double" and draw(st.booleans()):
                astray.append(copy.pop())
        copies.append(copy)
    for each in astray:
        into = draw(st.integers(0, len(copies) - 1))
        copies[into].insert(draw(st.integers(0, len(copies[into]))), each)
    target = tuple(Packed(tuple(copy)) for copy in copies if copy)
    if draw(st.booleans()) and target:
        target = (Packed(tuple(records_of(target)), "gzip"),)
    return Case(tuple(Packed(tuple(map(record, batch))) for batch in batches), target, found, not astray)


@settings(max_examples=choose_examples(30, 100), deadline=None)
@given(cases(), st.sampled_from((1, 2, 3, 5, 8, 100)))
def test_classes_are_those_of_the_oracle(case: Case, chunk: int) -> None:
    proof = proof_of(case.source, case.target, chunk)
    counts = proof.judgement.total
    here, there = records_of(case.source), records_of(case.target)
    common = Counter(here) & Counter(there)
    n_common = sum(common.values())
    moved = n_common - longest_common(here, there)
    lost, more = len(here) - n_common, len(there) - n_common
    doubled = sum(1 for each in (Counter(there) - Counter(here)).elements() if each in set(here))

    assert proof.judgement.exact
    assert counts.reordered == moved
    assert counts.duplicates == doubled
    assert counts.missing + counts.pending + counts.altered == lost
    assert counts.foreign + counts.altered == more - doubled
    assert counts.proven == len(here) - lost - moved
    assert counts.altered <= len(case.altered)
    if case.in_line:
        assert counts.altered == len(case.altered)
        assert components(proof) == set(case.altered.values())
    if counts.altered == len(case.altered):
        gone = set(here) - set(there) - {record(number) for number in case.altered}
        behind = next((at for at, each in enumerate(reversed(here)) if each not in gone), len(here))
        assert counts.pending == behind
    assert counts.unverifiable == 0
    event("by batches" if any(row.by == "batches" for row in proof.rows) else "by records only")
    event(f"different: {min(counts.difference_count, 5)}")


@st.composite
def aligned(draw: st.DrawFn) -> tuple[dict[int, ConsumedRecord], dict[int, ConsumedRecord], dict[int, str]]:
    """(source, copy, altered) by offset, with gaps in both, where the copy has records at other offsets, too."""
    offsets = draw(st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=30).map(sorted))
    source = {offset: record(number) for number, offset in enumerate(offsets)}
    target: dict[int, ConsumedRecord] = {}
    found: dict[int, str] = {}
    change = st.sampled_from(
        ("keep",) * draw(st.sampled_from((1, 8, 30))) + ("lose", "alter", "displace", "double", "strange")
    )
    astray: list[ConsumedRecord] = []
    for number, offset in enumerate(offsets):
        how = draw(change)
        if how in ("keep", "double"):
            target[offset] = source[offset]
        if how in ("displace", "double"):
            astray.append(source[offset])
        if how == "strange":
            astray.append(record(20_000 + number))
        if how == "alter":
            found[offset] = draw(st.sampled_from(COMPONENTS))
            target[offset] = altered(number, found[offset])
    for each in astray:
        free = [offset for offset in range(42) if offset not in target]
        target[draw(st.sampled_from(free))] = each
    return source, target, found


@settings(max_examples=choose_examples(30, 100), deadline=None)
@given(aligned(), st.sampled_from((1, 3, 8, 100)), st.booleans())
def test_classes_of_an_aligned_copy(
    case: tuple[dict[int, ConsumedRecord], dict[int, ConsumedRecord], dict[int, str]], chunk: int, ends_alike: bool
) -> None:
    source, target, changed = case
    end = 42 if ends_alike else max(target, default=-1) + 1
    proof = proof_in_place(source, target, end, chunk)
    counts = proof.judgement.total
    same = sum(source.get(offset) == each for offset, each in target.items())
    here = Counter(each for offset, each in source.items() if target.get(offset) != each)
    there = Counter(each for offset, each in target.items() if source.get(offset) != each)
    displaced = sum((here & there).values())
    known = set(source.values())
    doubled = sum(1 for each in (there - here).elements() if each in known)
    lost = sum((here - there).values()) - len(changed)
    assert counts.proven == same
    assert counts.reordered == 0
    assert counts.altered == displaced + len(changed)
    assert counts.missing + counts.pending == lost
    assert counts.duplicates == doubled
    assert counts.foreign == sum(there.values()) - displaced - doubled - len(changed)
    assert components(proof) == {*changed.values(), *(["offset"] if displaced else [])}
    event("by batches" if any(row.by == "batches" for row in proof.rows) else "by records only")


def proof_of(source: Log, target: Log, chunk: int) -> ComparisonOutcome:
    stored = Stored()
    ends = [stored.put((alias, "t", 0), log) for alias, log in (("onprem", source), ("cloud", target))]
    return _proof(stored, ends[0], ends[1], chunk)


def proof_in_place(
    source: dict[int, ConsumedRecord], target: dict[int, ConsumedRecord], end: int, chunk: int
) -> ComparisonOutcome:
    """Neighbours make a batch."""
    stored = Stored()
    for alias, log in (("onprem", source), ("cloud", target)):
        runs: list[tuple[int, list[ConsumedRecord]]] = []
        for offset, each in sorted(log.items()):
            if runs and offset == runs[-1][0] + len(runs[-1][1]) and len(runs[-1][1]) < 4:
                runs[-1][1].append(each)
            else:
                runs.append((offset, [each]))
        batches = tuple(Packed(tuple(some)) for _, some in runs)
        stored.put((alias, "t", 0), batches, [base for base, _ in runs])
    return _proof(stored, 42, end, chunk, in_place=True)


def _proof(
    stored: Stored, source_end: int, target_end: int, chunk: int, *, in_place: bool = False
) -> ComparisonOutcome:
    seen = ObservedPartition(
        PLACE, LogRange(0, source_end), LogRange(0, target_end), OffsetMap.of([(0, 0)]), source_end, IDS
    )
    subject = ProofPartition(fix_window(seen), seen.map, ("onprem", "cloud"), in_place=in_place, chunk=chunk)
    with stored.in_place_of_clusters() as readers:
        return compare_and_judge([subject], readers)


def components(proof: ComparisonOutcome) -> set[str]:
    return {name for each in proof.confirmed for name in each.difference.components}


def longest_common(a: list[ConsumedRecord], b: list[ConsumedRecord]) -> int:
    """The textbook table."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(before[j + 1], row[j]))
    return row[-1]
