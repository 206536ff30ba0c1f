"""Answers that a stamping topic and a forged batch have in common: what stands at the target tells which it is."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import pytest

from tests.replicator.build import NOW, batch_of, data, with_attributes, with_crc
from tests.replicator.test_partition import KEY, TARGET, copying, sent, taken
from watershed.clusters.errors import Unreachable
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME, RawBatch
from watershed.replicator.partition_states import Halt
from watershed.replicator.recovery import ambiguous_answers
from watershed.replicator.recovery.ambiguous_answers import REREAD_AFTER_S, AmbiguousAnswers, judge_stored_batch


def answered_as_older(codec: str = "none") -> Halt:
    """Two records of ours, meant for target offsets 30 and 31, are answered for with another time than theirs."""
    copy = copying(position=100, acked=30)
    taken(copy, data(100, 2, codec=codec))
    sent(copy)
    copy.answered(ProducedPartition(TARGET, 0, error_codes.NONE, 30, 0, append_time=NOW + 9_000))
    assert isinstance(copy.trouble, Halt)
    assert copy.trouble.state == "append_time"
    return copy.trouble


def at_target(records: bytes, stamped: bool) -> RawBatch:
    """`records` of ours as the target stores them at offset 30."""
    moved = (30).to_bytes(8, "big") + records[8:]
    return batch_of(with_crc(with_attributes(moved, LOG_APPEND_TIME)) if stamped else moved)


@pytest.mark.parametrize("stored_as", ["none", "gzip"])
def test_what_was_sent_and_stamped_is_append_time(stored_as: str) -> None:
    told = judge_stored_batch(answered_as_older(), at_target(data(100, 2, codec=stored_as), stamped=True))
    assert (told.state, told.target, told.sent) == ("append_time", (30, 32), None)


@pytest.mark.parametrize(
    "there",
    [
        at_target(data(100, 2, producer_id=7), stamped=False),  # ours to the byte, and another time: not stamped
        at_target(data(100, 2, size=9), stamped=True),
        at_target(data(100, 2, size=9, codec="gzip"), stamped=True),
        at_target(data(100, 3), stamped=True),
    ],
)
def test_anything_else_is_a_foreign_write(there: RawBatch) -> None:
    told = judge_stored_batch(answered_as_older(), there)
    assert (told.state, told.source, told.sent) == ("target_foreign_write", (100, 102), None)
    assert told.target == (30, there.end)
    assert "target offsets 30 to" in told.error
    assert "source offsets 100 to 101" in told.error
    assert "reseed" in told.remedy


def test_what_is_gone_is_told_as_it_was_answered() -> None:
    assert judge_stored_batch(answered_as_older(), None).state == "append_time"


class Now(Executor):
    """Work is done when it is handed in."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  raised again by `result`
            done.set_exception(error)
        return done


def test_nothing_is_decided_before_the_target_has_said_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[RawBatch | Exception] = [Unreachable("gone"), at_target(data(100, 2), stamped=False)]

    def stored(*_: Any) -> RawBatch:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ambiguous_answers, "read_stored_batch", stored)
    inspections, halt = AmbiguousAnswers(None, Now()), answered_as_older()  # type: ignore[arg-type]
    assert inspections.judge(KEY, halt, 100.0) is None
    assert inspections.judge(KEY, halt, 100.1) is None
    assert inspections.judge(KEY, halt, 100.0 + REREAD_AFTER_S) is None, "it failed, and is asked again"
    assert answers, "not before a second has passed"
    assert inspections.judge(KEY, halt, 102.0) is None
    found = inspections.judge(KEY, halt, 102.1)
    assert found is not None
    assert found.state == "target_foreign_write"
