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
from itertools import zip_longest

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import FetchPartition, ProducePartition
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import decode_batches

_BUSY_POLL_MS, _QUIET_POLL_MS = 30, 500  # as the fetchers of a worker (`replicator.transport.fetcher`)
_Place = tuple[uuid.UUID, int]  # topic id and partition
_Rewritten = tuple[tuple[bytes, memoryview], int, int]  # see build_header_rewrites


def build_header_rewrites(records: memoryview, position: int, sequence: int, producer_id: int) -> Iterator[_Rewritten]:
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
        known = admin.topics()
        places = {
            TopicPartition(name, number): (known[name].topic_id, number)
            for name in topics
            for number in range(known[name].partitions)
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
        copied = admin.topic(topic)
        assert copied is not None, f"{topic} is there before the copy begins"
        producer_id = sending.issue_producer_id()
        while is_quiet_asked_for():
            for place, position in positions.items():
                session.ask(FetchPartition(*place, position))
            answers = fetching.fetch(session, max_wait_ms=_BUSY_POLL_MS)
            batches: list[list[tuple[_Place, _Rewritten]]] = []
            for answer in answers:
                if answer.error:
                    raise RuntimeError(f"the source answers error {answer.error} for partition {answer.partition}")
                place = answer.topic_id, answer.partition
                found = build_header_rewrites(answer.records, positions[place], sequences[place], producer_id)
                batches.append([(place, each) for each in found])
            for together in zip_longest(*batches):  # a request has one batch of each partition, as a worker's
                sent = [each for each in together if each is not None]
                _send(sending, copied.topic_id, sent)
                positions.update({place: behind for place, (_, behind, _) in sent})
                sequences.update({place: following for place, (_, _, following) in sent})
    raise RuntimeError("the session of the quiet partitions has ended: what is measured now is not beside them")


def _send(sending: Connection, topic_id: uuid.UUID, batches: list[tuple[_Place, _Rewritten]]) -> None:
    sending.send_produce(
        tuple(ProducePartition(topic_id, partition, pieces) for (_, partition), (pieces, _, _) in batches)
    )
    for told in sending.receive_produce():
        if told.error:
            raise RuntimeError(f"the target answers error {told.error} for partition {told.partition}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
