"""An empty log is brought to the very offset, whatever happens to any request of any number of workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.replicator.aligning import FLOW, TOPIC, Clock, Event, Killed, Requests, cluster, dying, end_of, killed, lost
from watershed.clusters.errors import ClusterError, RequestRefused, TopicMissing, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.record_batch import BatchRecord as Stored
from watershed.clusters.record_batch import build_batch
from watershed.replicator.batch import filler_batch
from watershed.replicator.batch.codecs import ZSTD, CodecError, compress_payload, decompress_payload
from watershed.replicator.batch.filler_batch import build_filler_batch, is_filler_batch
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.records import decode_record_bodies
from watershed.replicator.copy.aligned import empty_log_filler as filling
from watershed.replicator.copy.aligned import log_end
from watershed.replicator.copy.aligned.empty_log_filler import FillProgress, fill_log
from watershed.replicator.copy.aligned.filling_configs import CLEANUP_POLICY
from watershed.replicator.errors import Misaligned

WITH = {"bare": False}
UNTIL = 45  # with RECORDS 5 and DELETE_EVERY 20: nine batches, two deletions on the way


@pytest.fixture(params=["transactions", "bare"])
def small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Small batches, no pauses; the last offset is a transaction's or a bare marker's."""
    monkeypatch.setattr(log_end, "time", Clock())
    monkeypatch.setattr(log_end, "RIVAL_MARKER_WAIT_S", 1e-6)
    monkeypatch.setitem(WITH, "bare", request.param == "bare")
    monkeypatch.setattr(filler_batch, "FILLER_BATCH_RECORDS", 5)
    monkeypatch.setattr(filling, "_DELETE_EVERY", 20)
    monkeypatch.setattr(log_end, "_PAUSE_S", 0.0)
    monkeypatch.setattr(log_end, "_FETCH_MS", 1)
    monkeypatch.setattr("watershed.replicator.copy.transactions.transactional_producer.COORDINATOR_PAUSE_S", 0.0)
    monkeypatch.setattr("watershed.replicator.copy.aligned.target_log._PAUSE_S", 0.0)
    caches = (filler_batch.count_fitting_records, filler_batch._most_empty_records, filler_batch._template)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def work(there: FakeCluster, until: int = UNTIL, at: int = -1, event: Event | None = None, **more: Any) -> Requests:
    """What a worker does: fill, and where a connection is lost do it again."""
    requests = Requests(there, at, event)
    while True:
        with suppress(Unreachable):  # the inspections before and after
            fill_log(requests.log(), until, FLOW, there.coordinator.version >= 2, **(WITH | more))
            return requests


def check(there: FakeCluster, until: int = UNTIL) -> None:
    log = there.log(TOPIC, 0)
    assert (log.log_start, log.end) == (until, until)
    assert there.records(TOPIC, 0, committed=False) == []
    assert there.produce(TOPIC, 0, [b"first"]) == until


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("until", [0, 1, 4, 5, 6, 45, 47])
def test_every_end_is_reached(until: int) -> None:
    there = cluster()
    work(there, until)
    check(there, until)


@pytest.mark.usefixtures("small")
def test_a_source_whose_start_moves_is_followed() -> None:
    there = cluster()
    for until in (7, 7, 8, 45, 46):
        work(there, until)
        assert end_of(there) == until
    check(there, 46)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("executed", [False, True])
def test_a_connection_lost_at_every_request(executed: bool) -> None:
    for at in range(work(cluster()).count):
        there = cluster()
        work(there, UNTIL, at, lost(there, executed=executed))
        check(there)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("executed", [False, True])
def test_killed_at_every_request_and_a_successor_goes_on(executed: bool) -> None:
    for at in range(work(cluster()).count):
        there = cluster()
        with pytest.raises(Killed):
            work(there, UNTIL, at, killed(executed=executed))
        work(there)
        check(there)


@pytest.mark.usefixtures("small")
def test_a_request_of_a_dead_worker_that_arrives_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare marker that takes the last offset arrives while its successor waits for that, if not before."""
    until = 8
    waiting: list[Callable[[], Any]] = []
    monkeypatch.setattr(log_end, "time", Clock(lambda: waiting and waiting.pop()()))
    for at in range(work(cluster(), until).count):
        moment = 0
        while True:
            there = cluster()
            late: list[Callable[[], Any]] = []
            with pytest.raises(Killed):
                work(there, until, at, dying(late))

            def arrives(execute: Callable[[], Any], late: list[Callable[[], Any]] = late) -> Any:
                while late:
                    with suppress(ClusterError):
                        late.pop()()
                return execute()

            last = WITH["bare"] and end_of(there) == until - 1
            waiting[:] = [lambda: arrives(lambda: None)] if last else []
            requests = work(there, until, moment, arrives)
            check(there, until)
            if requests.count <= moment:
                break
            moment += 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("state", [pytest.param("kept", marks=pytest.mark.soak), "forgotten"])
def test_a_zombie_that_wakes_up_in_front_of_every_request(state: str) -> None:
    """A successor worked meanwhile, as far as its own death. forgotten: and the broker swept our producer id away, as
    it does with ids whose last record is of 1970; then the log may become too long, which is said, and never once it
    was finished."""
    until = 8
    for at in range(work(cluster(), until).count):
        death, finished = 0, False
        while not finished:
            there = cluster()

            def meanwhile(execute: Callable[[], Any], there: FakeCluster = there, death: int = death) -> Any:
                nonlocal finished
                finished = False
                with suppress(Killed):
                    finished = work(there, until, death, killed(executed=True)).count <= death
                if state == "forgotten":
                    there.expire_producers()
                return execute()

            finished = True
            too_long = False
            try:
                work(there, until, at, meanwhile)
                work(there, until)
            except Misaligned:
                too_long = True
            assert not too_long or (state == "forgotten" and not finished)
            if not too_long:
                check(there, until)
            death += 1


@pytest.mark.usefixtures("small")
def test_twins_are_both_exact() -> None:
    there = cluster()
    workers = [threading.Thread(target=work, args=(there, 2_000)) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    check(there, 2_000)


@pytest.mark.usefixtures("small")
def test_a_broker_that_forgets_the_producer_all_the_time() -> None:
    there = cluster()

    class Forgetting(Requests):
        def made(self, execute: Callable[[], Any]) -> Any:
            there.expire_producers()
            return super().made(execute)

    requests = Forgetting(there)
    fill_log(requests.log(), UNTIL, FLOW)
    check(there)


@pytest.mark.usefixtures("small")
def test_retention_that_takes_the_filler_away() -> None:
    there = cluster()
    with pytest.raises(Killed):
        work(there, UNTIL, 12, killed(executed=True))
    there.delete_records(TOPIC, 0, end_of(there))
    there.start()  # a restarted broker knows no producer without records
    work(there)
    check(there)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("foreign_at", [0, 1, 3, 9, 14, 17])
def test_what_somebody_else_wrote_is_never_deleted(foreign_at: int) -> None:
    there = cluster()

    def writes(execute: Callable[[], Any]) -> Any:
        there.produce(TOPIC, 0, [b"foreign"])
        return execute()

    with pytest.raises(Misaligned, match="it holds something else at offset"):
        work(there, UNTIL, foreign_at, writes)
    assert [record.value for record in there.records(TOPIC, 0, committed=False) if record.value] == [b"foreign"]


@pytest.mark.usefixtures("small")
def test_a_log_that_is_too_long_stops_with_its_coordinates() -> None:
    there = cluster()
    work(there, 45)
    with pytest.raises(Misaligned, match="orders-0 on cluster cloud was to be brought to offset 44: it ends at 45"):
        work(there, 44)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"cleanup.policy": "compact"}, "INVALID_RECORD"),
        ({"message.timestamp.before.max.ms": "3600000"}, "INVALID_TIMESTAMP"),
        ({"max.message.bytes": "60"}, "MESSAGE_TOO_LARGE"),
    ],
)
def test_a_topic_that_does_not_take_filler_says_so(configs: dict[str, str], said: str) -> None:
    with pytest.raises(RequestRefused, match=f"{said} to filler up to offset {UNTIL} for orders-0"):
        work(cluster(configs=configs))


@pytest.mark.usefixtures("small")
def test_a_topic_made_again_is_not_filled() -> None:
    there = cluster()

    def again(execute: Callable[[], Any]) -> Any:
        there.delete_topic(TOPIC)
        there.create_topic(TOPIC, 1)
        return execute()

    requests = Requests(there, 3, again)
    with pytest.raises(TopicMissing, match="has no topic orders with id"):
        fill_log(requests.log(), UNTIL, FLOW)
    assert end_of(there) == 0


@pytest.mark.usefixtures("small")
def test_compacted_only_is_refused_by_delete_records_too() -> None:
    there = cluster()
    requests = Requests(there)
    requests.log().delete_below(0)
    there.alter_topic_configs(TOPIC, {CLEANUP_POLICY: "compact"})
    with pytest.raises(RequestRefused, match="POLICY_VIOLATION to DeleteRecords"):
        requests.log().delete_below(0)


@pytest.mark.usefixtures("small")
def test_stopped_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_PROGRESS_S", 0.0)
    there, stop, told = cluster(), threading.Event(), list[FillProgress]()

    def progress(how_far: FillProgress) -> None:
        told.append(how_far)
        if how_far.done >= 15:
            stop.set()

    requests = Requests(there)
    reached = fill_log(requests.log(), UNTIL, FLOW, progress=progress, stop=stop)
    assert 15 <= reached < UNTIL
    assert reached == end_of(there)
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert {(each.topic, each.partition, each.of) for each in told} == {(TOPIC, 0, UNTIL)}
    assert told[0].seconds_left is None
    assert told[-1].seconds_left is not None
    work(there)
    check(there)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8191, 8192, 8193, 100_000])
def test_a_batch_holds_what_it_says(count: int) -> None:
    header, payload = build_filler_batch(count, 7, 3, 12)
    (batch,) = decode_batches(memoryview(header + payload))
    assert (batch.records, batch.producer_id, batch.base_sequence, batch.codec) == (count, 7, 12, ZSTD)
    found = decode_record_bodies(decompress_payload(ZSTD, payload), count, 0, 0)
    assert [record.offset for record in found] == list(range(count))
    assert {(record.timestamp, record.rest) for record in found} == {(0, b"\x01\x01\x00")}
    assert is_filler_batch(batch)
    assert len(header) == BATCH_HEADER_BYTES
    assert len(payload) < 60_000


@pytest.mark.parametrize("count", [0, 100_001])
def test_a_batch_is_never_larger(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 100000 are allowed"):
        build_filler_batch(count, 7, 3, 0)


def test_what_is_no_filler() -> None:
    for record in (Stored(0, 0, None, b""), Stored(0, 0, b"", None), Stored(0, 0, None, None, (("a", None),))):
        (batch,) = decode_batches(memoryview(build_batch([record])))
        assert not is_filler_batch(batch)
    (batch,) = decode_batches(memoryview(build_batch([Stored(0, 0, None, None)], transactional=True)))
    assert not is_filler_batch(batch)


def test_what_poses_as_filler_is_not_opened_beyond_what_filler_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker that passes a batch of 1970 with zstd on looks into it: 4 KB of them may hold 128 MiB."""
    opened: list[int] = []

    def noting(codec: int, packed: memoryview, most: int) -> bytes:
        opened.append(most)
        return decompress_payload(codec, packed, most)

    monkeypatch.setattr(filler_batch, "decompress_payload", noting)
    header, payload = build_filler_batch(100, 7, 3, 0)
    bomb = compress_payload(ZSTD, bytes(16 << 20))
    size = (len(header) - 12 + len(bomb)).to_bytes(4, "big")
    (forged,) = decode_batches(memoryview(header[:8] + size + header[12:] + bomb))
    assert not is_filler_batch(forged)
    assert opened == [len(decompress_payload(ZSTD, payload))]
    with pytest.raises(CodecError, match="more than 700 bytes"):
        decompress_payload(ZSTD, bomb, 700)
