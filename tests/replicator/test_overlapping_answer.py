"""An answer that another one has overtaken is cut to what is new, exactly as if it had been asked for from there."""

from __future__ import annotations

import random

import pytest

from tests.replicator.build import abort, answer, batch_of, commit, data, old_format, transactional
from watershed.replicator.batch.batch_selection import decode_with_outcome
from watershed.replicator.batch.overlapping_answer import cut_answer
from watershed.replicator.batch.record_batch import BatchChecksum


def checksum_of(stored_batch: bytes) -> BatchChecksum:
    return BatchChecksum.of(batch_of(stored_batch))


Aborted = tuple[tuple[int, int], ...]


def build_log(dice: random.Random) -> tuple[list[bytes], Aborted]:
    """Batches of plain records and of transactions of three producers, and which of these were aborted."""
    at, batches, aborted = 0, [], []
    open_: dict[int, int] = {}  # producer: first offset
    for _ in range(dice.randrange(1, 40)):
        producer = dice.randrange(7, 10)
        what = dice.choice(("data", "more", "more", "end"))
        if what == "data":
            batches.append(data(at))
        elif what == "more":
            open_.setdefault(producer, at)
            batches.append(transactional(at, 1, producer))
        elif producer in open_:
            first = open_.pop(producer)
            if dice.random() < 0.6:
                aborted.append((producer, first))
                batches.append(abort(at, producer))
            else:
                batches.append(commit(at, producer))
        else:
            batches.append(commit(at, producer))
        at += 1
    batches += [abort(at + number, producer) for number, producer in enumerate(open_)]
    return batches, (*aborted, *open_.items())


@pytest.mark.parametrize("seed", range(30))
def test_what_is_left_has_the_outcomes_that_it_had(seed: int) -> None:
    batches, aborted = build_log(random.Random(seed))
    whole = answer(*batches)
    outcomes = [(batch.base, lost) for batch, lost in decode_with_outcome(whole, aborted)]
    for position in range(len(batches) + 1):
        part = cut_answer(whole, aborted, position, checksum_of(batches[position - 1]))
        assert bytes(part.records) == b"".join(batches[position:])
        found = [(batch.base, lost) for batch, lost in decode_with_outcome(part.records, part.aborted)]
        assert found == outcomes[position:]


def test_an_answer_that_nobody_has_overtaken_stays_as_it_is() -> None:
    whole, aborted = answer(data(5), data(6)), ((7, 2),)
    assert cut_answer(whole, aborted, 5, None) == (whole, aborted)
    empty = answer()
    assert cut_answer(empty, (), 5, None) == (empty, ())


def test_a_batch_around_the_position_is_kept_whole() -> None:
    whole = answer(data(0), data(1, 4))
    assert bytes(cut_answer(whole, (), 3, checksum_of(data(0))).records) == data(1, 4)


def test_an_answer_of_a_log_that_was_cut_off_since_is_not_used() -> None:
    """It was on its way while another leader's log replaced the end."""
    whole = answer(data(0), data(1))
    assert bytes(cut_answer(whole, (), 1, checksum_of(data(0))).records) == data(1)
    assert bytes(cut_answer(whole, (), 1, checksum_of(data(0, size=6))).records) == b""
    assert bytes(cut_answer(whole, (), 1, None).records) == b""


def test_old_formats_that_overlap_are_asked_for_again() -> None:
    whole = answer(old_format(0, 1), old_format(1, 1))
    assert bytes(cut_answer(whole, (), 0, None).records) == bytes(whole)
    assert bytes(cut_answer(whole, (), 1, checksum_of(old_format(0, 1))).records) == b""
