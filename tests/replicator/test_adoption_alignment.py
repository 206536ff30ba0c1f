"""Laying one log over another: what at-least-once copiers do, mutation by mutation, with the exact ranges."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.replicator.adopting import log_of
from watershed.clusters.record_fingerprint import digest_record
from watershed.replicator.adoption import log_digests
from watershed.replicator.adoption.log_alignment import (
    LogAlignment,
    MatchedRecords,
    RecordSpan,
    align_logs,
    count_equal_records,
)
from watershed.replicator.adoption.log_digests import ConsecutiveRecords, DigestedLog, DigestedLogBuilder


def numbered(count: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(first + n, b"%d" % (first + n)) for n in range(count)]


def copied(*numbers: int | bytes, first: int = 0) -> DigestedLog:
    """A target log of those source records (by number), or of others."""
    return log_of((first + at, n if isinstance(n, bytes) else b"%d" % n) for at, n in enumerate(numbers))


SOURCE = log_of(numbered(200))


def test_an_exact_copy_that_is_not_finished() -> None:
    found = align_logs(SOURCE, copied(*range(150)))
    assert found.copied == (MatchedRecords(0, 0, 150),)
    assert (found.frontier, found.flaws, found.unread) == (150, (0, 0), 150)


def test_nothing_copied_yet() -> None:
    found = align_logs(SOURCE, copied())
    assert (found.copied, found.frontier, found.flaws) == ((), 0, (0, 0))


def test_a_restart_repeats() -> None:
    found = align_logs(SOURCE, copied(*range(100), *range(50, 130)))
    assert found.copied == (MatchedRecords(0, 0, 100), MatchedRecords(150, 100, 30))
    assert found.repeated == (MatchedRecords(100, 50, 50),)
    assert (found.frontier, found.flaws) == (130, (0, 50))


def test_stopped_in_the_middle_of_repeating() -> None:
    found = align_logs(SOURCE, copied(*range(100), *range(50, 70)))
    assert found.repeated == (MatchedRecords(100, 50, 20),)
    assert (found.frontier, found.flaws) == (100, (0, 20))


def test_two_restarts_one_in_the_other() -> None:
    found = align_logs(SOURCE, copied(*range(100), *range(50, 70), *range(40, 130)))
    assert found.repeated == (MatchedRecords(100, 50, 20), MatchedRecords(120, 40, 60))
    assert (found.frontier, found.flaws) == (130, (0, 80))


def test_a_record_left_out_and_one_changed() -> None:
    found = align_logs(SOURCE, copied(*range(50), *range(51, 80), b"other", *range(81, 130)))
    assert found.missing == (RecordSpan(50, 1), RecordSpan(80, 1))
    assert found.alien == (RecordSpan(79, 1),)
    assert (found.frontier, found.flaws) == (130, (3, 0))


def test_records_that_came_late() -> None:
    found = align_logs(SOURCE, copied(*range(50), *range(60, 100), *range(50, 70), *range(100, 120)))
    assert found.late == (MatchedRecords(90, 50, 10),)
    assert found.repeated == (MatchedRecords(100, 60, 10),)
    assert (found.missing, found.frontier) == ((), 120)


def test_the_source_has_expired() -> None:
    source = log_of(numbered(100, 50))
    found = align_logs(source, copied(*range(120)), expired=True)
    assert (found.before, found.copied, found.frontier) == (50, (MatchedRecords(50, 0, 70),), 70)
    assert found.flaws == (0, 0)
    again = align_logs(source, copied(*range(40), *range(30, 120)), expired=True)
    assert again.before == 60
    late = align_logs(source, copied(*range(60), *range(40, 120)), expired=True)
    assert (late.before, late.repeated_before, late.repeated) == (
        50,
        (RecordSpan(60, 10),),
        (MatchedRecords(70, 0, 10),),
    )


def test_all_that_the_target_has_is_expired() -> None:
    found = align_logs(log_of(numbered(10, 500)), copied(*range(120)), expired=True)
    assert (found.before, found.copied, found.frontier, found.flaws) == (120, (), 0, (0, 0))


def test_the_target_lacks_the_beginning() -> None:
    found = align_logs(SOURCE, copied(*range(60, 100), first=900))
    assert (found.head, found.missing, found.frontier) == (60, (RecordSpan(0, 60),), 100)


def transactional() -> tuple[DigestedLog, list[int]]:
    """Records 0 to 99, of which 20 to 29 and every third of 60 to 80 are aborted; the offsets count markers, too."""
    gone = [*range(20, 30), *range(60, 81, 3)]
    offsets = [n + n // 10 for n in range(100)]
    return log_of([(offsets[n], b"%d" % n) for n in range(100)], [offsets[n] for n in gone]), gone


def test_a_copier_that_reads_committed() -> None:
    source, gone = transactional()
    kept = [n for n in range(100) if n not in gone]
    found = align_logs(source, copied(*kept))
    assert found.flaws == (0, 0)
    assert sum(p.records for p in found.copied) == len(kept)
    assert found.source.offset(found.frontier - 1) == 99 + 9
    repeating = align_logs(source, copied(*kept[:40], *kept[10:]))
    assert repeating.flaws == (0, 30)


def test_a_copier_that_reads_uncommitted() -> None:
    source, gone = transactional()
    found = align_logs(source, copied(*range(90)))
    assert found.flaws == (0, len([n for n in gone if n < 90]))
    assert sum(p.records for p in found.aborted) == found.flaws[1]
    assert found.aborted[0] == MatchedRecords(20, 20, 10)
    assert (found.frontier, found.missing) == (90, ())


def test_a_copier_that_read_uncommitted_and_then_committed() -> None:
    source, gone = transactional()
    found = align_logs(source, copied(*range(70), *(n for n in range(70, 100) if n not in gone)))
    assert found.flaws == (0, len([n for n in gone if n < 70]))
    assert found.missing == ()


def test_content_of_an_aborted_transaction_that_is_sent_again() -> None:
    source = log_of([(n, b"%d" % (n % 5)) for n in range(10)], range(5))
    whole = align_logs(source, copied(*range(5)))
    assert whole.flaws == (0, 0)
    assert whole.source.offset(whole.frontier - 1) == 9  # and not 4: what is committed would be copied once more


def test_records_that_are_all_the_same() -> None:
    same = log_of([(n, b"ping") for n in range(100)])
    assert align_logs(same, log_of([(n, b"ping") for n in range(60)])).frontier == 60
    more = align_logs(same, log_of([(n, b"ping") for n in range(110)]))
    assert (more.frontier, more.flaws) == (100, (0, 10))


def test_a_compacted_copy_is_found_without_searching_everything() -> None:
    kept = [n for n in range(2000) if n % 3]
    found = align_logs(log_of(numbered(2000)), copied(*kept), sparse=True)
    assert sum(p.records for p in found.missing) == 667
    assert found.alien == ()


def test_another_topic_altogether_is_given_up() -> None:
    other = log_of([(n, b"x%d" % n) for n in range(5_000)])
    found = align_logs(SOURCE, other)
    assert found.unread < 5_000
    assert found.flaws[0] == 5_000


def test_hints_choose_between_places_that_look_alike() -> None:
    source = log_of([(n, b"%d" % (n % 2)) for n in range(40)])
    target = log_of([(n, b"%d" % ((n if n < 20 else n - 10) % 2)) for n in range(50)])
    assert align_logs(source, target, hints={30: 20}).frontier == 40


def test_hints_that_lie_change_nothing() -> None:
    log = copied(*range(100), *range(50, 130))
    assert align_logs(SOURCE, log, hints={100: 3, 120: 4_000}) == align_logs(SOURCE, log)


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_of_a_copier(seed: int) -> None:
    """A copier that crashes, skips and is written between: every class has exactly the records that it was given."""
    draw = random.Random(seed)
    count = draw.randrange(1, 600)
    gone = {n for n in range(count) if draw.random() < draw.choice((0, 0, 0.2))}
    offsets, at = [], draw.randrange(0, 50)
    for _ in range(count):
        offsets.append(at)
        at += 1 + (draw.random() < 0.1) * draw.randrange(1, 4)
    uncommitted = draw.random() < 0.5
    readable = [n for n in range(count) if uncommitted or n not in gone]
    target: list[tuple[str, int]] = []
    position = seen = 0
    skipped: set[int] = set()
    while position < len(readable) and draw.random() > 0.004:
        event = draw.random()
        if event < 0.01 and position:
            position = max(0, position - draw.randrange(1, 80))  # killed: it begins where it last noted
        elif event < 0.015 and position == seen:
            skipped.add(readable[position])
            position = seen = position + 1
            continue
        elif event < 0.02:
            target.append(("alien", len(target)))
            continue
        if readable[position] in skipped:
            position += 1
            continue
        kind = "repeated" if position < seen else "aborted" if readable[position] in gone else "copied"
        target.append((kind, readable[position]))
        position += 1
        seen = max(seen, position)
    source = log_of([(offsets[n], b"%d" % n) for n in range(count)], [offsets[n] for n in gone])
    found = align_logs(
        source, log_of((at, b"alien %d" % n if kind == "alien" else b"%d" % n) for at, (kind, n) in enumerate(target))
    )
    given = Counter(kind for kind, _ in target)
    last = max((n for kind, n in target if kind in ("copied", "aborted")), default=-1)
    assert found.unread == len(target)
    assert sum(p.records for p in found.alien) == given["alien"]
    assert _offsets(found, found.alien) == [at for at, (kind, _) in enumerate(target) if kind == "alien"]
    assert sum(p.records for p in found.missing) == len([n for n in skipped if n < last and n not in gone])
    assert found.late == ()
    behind = found.source.offset(found.frontier - 1) if found.frontier else -1
    if uncommitted and gone:
        assert _of(found.copied) + _of(found.repeated) + _of(found.alien) == len(target)
    else:
        assert _of(found.repeated) == given["repeated"]
        assert _of(found.copied) == given["copied"] + given["aborted"]
        assert behind == (offsets[last] if last >= 0 else -1)
    for pair in (*found.copied, *found.repeated):  # whatever is claimed is true
        for n in range(pair.records):
            number = offsets.index(found.source.offset(pair.source + n))
            assert target[pair.target + n][1] == number


def _of(found) -> int:
    return sum(each.records for each in found)


def _offsets(found: LogAlignment, parts: tuple[RecordSpan, ...]) -> list[int]:
    return [found.target.offset(part.first + n) for part in parts for n in range(part.records)]


@pytest.mark.parametrize("seed", range(20))
def test_few_different_contents_never_make_a_wrong_claim(seed: int) -> None:
    draw = random.Random(seed)
    here = [draw.choice((b"a", b"b", b"c")) for _ in range(300)]
    there = [content for content in here if draw.random() > 0.02]
    for _ in range(3):
        at = draw.randrange(len(there))
        there[at:at] = there[max(0, at - 20) : at]
    found = align_logs(log_of(enumerate(here)), log_of(enumerate(there)))
    for pair in (*found.copied, *found.repeated, *found.late):
        assert here[pair.source : pair.source + pair.records] == there[pair.target : pair.target + pair.records]
    every = (*found.copied, *found.repeated, *found.late)
    spans = sorted([(p.target, p.records) for p in every] + [(p.first, p.records) for p in found.alien])
    assert sum(records for _, records in spans) == found.unread
    assert [first for first, _ in spans] == [sum(records for _, records in spans[:at]) for at in range(len(spans))]
    chain = [pair.source for pair in found.copied]
    assert chain == sorted(chain)


def test_a_log_says_offsets_and_indexes() -> None:
    log = log_of([(5, b"a"), (6, b"b"), (9, b"c"), (10, b"d"), (20, b"e")], aborted=(6, 9))
    assert [log.offset(at) for at in range(5)] == [5, 6, 9, 10, 20]
    assert [log.index(at) for at in (0, 5, 6, 7, 9, 10, 11, 20, 21)] == [0, 0, 1, 2, 2, 3, 4, 4, 5]
    assert list(log.held(1, 3)) == [ConsecutiveRecords(1, 6, 1), ConsecutiveRecords(2, 9, 2)]
    assert log.aborted == ((1, 3),)
    kept = log.committed()
    assert [kept.offset(at) for at in range(len(kept))] == [5, 10, 20]


def test_large_logs_are_mapped_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_digests, "_CHUNK", 16)
    small = log_of(numbered(100))
    assert not isinstance(small.digests, bytes)
    assert bytes(small.digests[0:800]) == bytes(SOURCE.digests[0:800])
    assert count_equal_records(SOURCE, 3, small, 3, 97) == 97
    assert align_logs(small, SOURCE).frontier == 100
    assert len(DigestedLogBuilder().finished()) == 0


def test_the_digest_is_of_everything_and_keyed() -> None:
    one = digest_record(b"k" * 16, b"rest", 5)
    assert len(one) == 8
    assert (
        len(
            {
                one,
                digest_record(b"k" * 16, b"rest", 6),
                digest_record(b"j" * 16, b"rest", 5),
                digest_record(b"k" * 16, b"resT", 5),
            }
        )
        == 4
    )
    assert digest_record(b"k" * 16, b"rest", None) not in {one}
    assert digest_record(b"k" * 16, b"rest", -1) != digest_record(b"k" * 16, b"rest", 0)
