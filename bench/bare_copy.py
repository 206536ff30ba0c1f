"""A copy without a worker: what a record takes through the two brokers, beside a session of quiet partitions.

    python -m watershed.bench.bare_copy SOURCE TARGET PREFIX BUSY_TOPIC QUIET_TOPIC…

SOURCE and TARGET are addresses (host:port). One thread has a fetch session of all partitions of the quiet topics, as a
worker has. Another one asks for the busy topic in a session of its own and sends each batch on, with one request in
flight, from the position where the topic ends at the start. Nothing else is done: no ledger, no reports, no limits. So
whatever latency is left is that of the brokers and of the machine. It says `ready` on stdout, and runs until it is
ended.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition, ProducePartition
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import decode_batches

_BUSY_POLL_MS, _QUIET_POLL_MS = 30, 500  # as the fetchers of a worker (`replicator.transport.fetcher`)
_Place = tuple[uuid.UUID, int]  # topic id and partition


def build_header_rewrites(
    records: memoryview, position: int, sequence: int, producer_id: int
) -> Iterator[tuple[tuple[bytes, memoryview], int, int]]:
    """Of each batch from source offset `position` on: its pieces for a Produce, the offset behind it, and the sequence
    number of the record behind it."""
    for batch in decode_batches(records):
        if batch.base < position:
            continue
        header = rewrite_header(batch.data[:BATCH_HEADER_BYTES], producer_id=producer_id, epoch=0, sequence=sequence)
        sequence += batch.records
        yield (header, batch.data[BATCH_HEADER_BYTES:]), batch.end, sequence


def main(arguments: list[str]) -> int:
    """Copies until it is ended. Raises ClusterError, and RuntimeError where a broker refuses something."""
    here, there, prefix, busy, *quiet = arguments
    source, target = ConnectionSettings("source", (here,)), ConnectionSettings("target", (there,))
    ends, quiet_ends = _list_ends(source, [busy]), _list_ends(source, quiet)
    waiting = threading.Thread(target=_wait_for_quiet, args=(source, quiet_ends), daemon=True)
    waiting.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    _copy(source, target, ends, f"{prefix}.{busy}", lambda: not quiet_ends or waiting.is_alive())
    return 0


def _list_ends(settings: ConnectionSettings, topics: Iterable[str]) -> dict[_Place, int]:
    with Admin(settings) as admin:
        known = {name: info for name, info in admin.topics().items() if name in set(topics)}
        places = {
            TopicPartition(name, number): (info.topic_id, number)
            for name, info in known.items()
            for number in range(info.partitions)
        }
        return {places[where]: span.end for where, span in admin.offsets(list(places)).items()}


def _wait_for_quiet(settings: ConnectionSettings, ends: dict[_Place, int]) -> None:
    session = FetchSession()
    for place, end in ends.items():
        session.ask(FetchPartition(*place, end))
    with closing(open_connection(settings)) as connection:
        while ends:
            connection.fetch(session, max_wait_ms=_QUIET_POLL_MS)


def _copy(
    source: ConnectionSettings,
    target: ConnectionSettings,
    ends: dict[_Place, int],
    topic: str,
    is_quiet_asked_for: Callable[[], bool],
) -> None:
    session, positions, sequences = FetchSession(), dict(ends), dict.fromkeys(ends, 0)
    with (
        Admin(target) as admin,
        closing(open_connection(source)) as fetching,
        closing(open_connection(target)) as sending,
    ):
        found = admin.topic(topic)
        assert found is not None, f"{topic} is there before the copy begins"
        producer_id = sending.issue_producer_id()
        while is_quiet_asked_for():
            for place, position in positions.items():
                session.ask(FetchPartition(*place, position))
            for answer in fetching.fetch(session, max_wait_ms=_BUSY_POLL_MS):
                place = answer.topic_id, answer.partition
                positions[place], sequences[place] = _send(
                    sending, answer, found.topic_id, positions[place], sequences[place], producer_id
                )
    raise RuntimeError("the session of the quiet partitions has ended: what is measured now is not beside them")


def _send(
    sending: Connection, answer: FetchedPartition, topic_id: uuid.UUID, position: int, sequence: int, producer_id: int
) -> tuple[int, int]:
    if answer.error:
        raise RuntimeError(f"the source answers error {answer.error} for partition {answer.partition}")
    for pieces, behind, following in build_header_rewrites(answer.records, position, sequence, producer_id):
        sending.send_produce((ProducePartition(topic_id, answer.partition, pieces),))
        [told] = sending.receive_produce()
        if told.error:
            raise RuntimeError(f"the target answers error {told.error} for partition {told.partition}")
        position, sequence = behind, following
    return position, sequence


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
