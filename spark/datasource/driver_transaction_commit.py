"""What the driver does with the transactions that tasks left open: end all of them, this way or the other.

Every attempt of a task has a transactional id of its own, so a task that is tried again, or runs twice by speculation,
writes into another transaction; the driver commits those whose messages it got and aborts whatever else is open under
the job's prefix. It looks at all of them before it commits the first, so that one that timed out costs the job, not its
completeness. Between the first commit and the last there is no atomicity to be had from Kafka (KIP-939 would give it):
a driver that dies there leaves a batch job in part. A stream is exact all the same: its decision is written down before
the first commit (`CommitDecision`), and whoever replays the micro-batch finishes it instead of writing again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql.datasource import WriterCommitMessage

from watershed.clusters import librdkafka
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.open_transactions import (
    COMMITTED_STATES,
    COORDINATOR_LOADING_CODES,
    ONGOING_STATE,
    TransactionDescription,
    describe_transactions,
    list_open_transactions,
)
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.copy.transactions.transactional_producer import TransactionalProducer
from watershed.spark.datasource.task_transaction_append import OpenTaskTransaction
from watershed.spark.errors import NotAppended

log = logging.getLogger("watershed.spark")

_PREFIX: Final = "watershed-spark-"
_PATIENCE_S: Final = 60.0
_METADATA_BYTES: Final = 4_000  # offset.metadata.max.bytes of a broker is 4096 by default
_TV2 = 2

TransactionIdentity = tuple[str, int, int]  # transactional id, producer id, epoch
_Message = WriterCommitMessage | None  # None: of a task that failed


@dataclass(frozen=True, slots=True)
class CommitDecision:
    """That a micro-batch is to be committed, and by which transactions. Kept as metadata of a committed offset."""

    batch: int
    whom: tuple[TransactionIdentity, ...]


def commit_job(settings: ConnectionSettings, prefix: str, messages: Sequence[_Message]) -> None:
    """Commit a batch job. Raises NotAppended, ClusterError."""
    whom = list_winning_transactions(messages)
    _all_open(settings, whom)
    _commit(settings, whom)
    try:
        abort_other_transactions(settings, prefix, whom)
    except (NotAppended, ClusterError) as error:  # a job that "failed" would be run again, and all of it is there
        log.warning("all was committed; attempts that lost may stay open until their timeout: %s", error)


def commit_micro_batch(settings: ConnectionSettings, topic: str, messages: Sequence[_Message], batch: int) -> None:
    """Commit a micro-batch, once, however often it is asked for. Raises NotAppended, ClusterError."""
    query = _query(messages)
    whom = list_winning_transactions(messages)
    known = read_commit_decision(settings, query, topic)
    if known is not None and known.batch == batch:  # a replay of what was decided before the last driver ended
        _finish(settings, known)
        abort_other_transactions(settings, build_transaction_prefix(query), known.whom)
        return
    if known is not None and known.batch > batch:
        raise NotAppended(
            f"the query {query} has written up to micro-batch {known.batch} to {settings.alias}, and now comes with "
            f"{batch}: was its checkpoint restored from an older copy, or is progress tracked asynchronously? Nothing "
            "was written again. Begin with a new checkpoint, and startingOffsets behind what was written"
        )
    if whom:
        _all_open(settings, whom)
        _decide(settings, query, topic, CommitDecision(batch, whom))
        _commit(settings, whom)
    abort_other_transactions(settings, build_transaction_prefix(query), whom)


def abort_micro_batch(settings: ConnectionSettings, topic: str, messages: Sequence[_Message], batch: int) -> None:
    """Abort a micro-batch, but not what was decided: the replay commits that."""
    query = _query(messages)
    if query:
        known = read_commit_decision(settings, query, topic)
        abort_other_transactions(settings, build_transaction_prefix(query), known.whom if known is not None else ())


def build_transaction_prefix(query: str) -> str:
    """What the transactional ids of a stream, or of a job, begin with."""
    return f"{_PREFIX}{query}-"


def list_winning_transactions(messages: Sequence[_Message]) -> tuple[TransactionIdentity, ...]:
    """Transactions to commit: of each task the attempt whose result Spark took, unless it wrote nothing."""
    return tuple(
        (message.transactional_id, message.producer_id, message.epoch)
        for message in messages
        if isinstance(message, OpenTaskTransaction) and not message.nothing
    )


def _query(messages: Sequence[_Message]) -> str:
    """The stream that they are of; empty when no task ended well."""
    return next((message.query for message in messages if isinstance(message, OpenTaskTransaction)), "")


def read_commit_decision(settings: ConnectionSettings, query: str, topic: str) -> CommitDecision | None:
    """The last one of a stream."""
    with _Group(settings, query) as consumer:
        try:
            [found] = consumer.committed([TopicPartition(topic, 0)], timeout=_PATIENCE_S)
        except KafkaException as error:
            raise librdkafka.build_cluster_error(
                settings, librdkafka.extract_kafka_error(error), doing=f"reading what {_PREFIX}{query} has written"
            ) from error
    if found.offset < 0:
        return None
    return CommitDecision(
        found.offset, tuple((who, int(pid), int(epoch)) for who, pid, epoch in json.loads(found.metadata or "[]"))
    )


def abort_other_transactions(settings: ConnectionSettings, prefix: str, but: Sequence[TransactionIdentity]) -> None:
    """Abort all open transactions of a job or stream except these: attempts that failed or lost."""
    kept = {who for who, _, _ in but}
    for transactional_id in _open_ones(settings):
        if transactional_id.startswith(prefix) and transactional_id not in kept:
            producer = _producer(settings, (transactional_id, -1, -1), bump=True)
            try:
                producer.begin()  # fences whoever may still write, and ends what he had open
            except SessionLost as lost:
                raise NotAppended(f"transaction {transactional_id} on {settings.alias} stays open: {lost}") from None
            finally:
                producer.close()


def _all_open(settings: ConnectionSettings, whom: Sequence[TransactionIdentity]) -> None:
    states = _described(settings, [who for who, _, _ in whom])
    for who, producer_id, epoch in whom:
        seen = states.get(who)
        if seen is None or seen.state != ONGOING_STATE or seen.producer != ProducerIdAndEpoch(producer_id, epoch):
            raise NotAppended(
                f"transaction {who} on {settings.alias} is {seen.state if seen else 'unknown'} instead of open: it was "
                "ended by its timeout. Nothing of this job was committed. Give it more time (transactionTimeout, up to "
                "transaction.max.timeout.ms of the brokers), or write less in one job"
            )


def _commit(settings: ConnectionSettings, whom: Sequence[TransactionIdentity]) -> None:
    bump = bool(whom) and read_transaction_version(settings) >= _TV2
    for at, who in enumerate(whom):
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            producer = _producer(settings, who, bump=bump)
            try:
                producer.end(commit=True)  # asked again it answers the same: the coordinator remembers how it ended
                break
            except (SessionLost, Unreachable) as error:
                if time.monotonic() > deadline or (isinstance(error, SessionLost) and not _committed(settings, who)):
                    raise NotAppended(
                        f"cluster {settings.alias}: {at} of {len(whom)} transactions of this job were committed, then "
                        f"{who[0]} could not be: {error}"
                    ) from None
                if isinstance(error, SessionLost):
                    break
                time.sleep(0.2)
            finally:
                producer.close()


def _finish(settings: ConnectionSettings, known: CommitDecision) -> None:
    """Commit what was decided and is still open. Raises NotAppended where that is too late for some of it."""
    states = _described(settings, [who for who, _, _ in known.whom])
    lost = [
        who
        for who, _, _ in known.whom
        if who not in states or states[who].state not in {ONGOING_STATE, *COMMITTED_STATES}
    ]
    if lost:
        raise NotAppended(
            f"micro-batch {known.batch} was committed in part on {settings.alias}: the driver ended between the "
            f"commits and came back after the transactions' timeout, {len(lost)} of {len(known.whom)} are lost "
            f"({', '.join(lost)}). Compare the micro-batch with the target before you go on with a new checkpoint"
        )
    _commit(settings, [each for each in known.whom if states[each[0]].state == ONGOING_STATE])


def _committed(settings: ConnectionSettings, who: TransactionIdentity) -> bool:
    seen = _described(settings, [who[0]]).get(who[0])
    return seen is not None and seen.state in COMMITTED_STATES


def _decide(settings: ConnectionSettings, query: str, topic: str, what: CommitDecision) -> None:
    text = json.dumps(what.whom, separators=(",", ":"))
    if len(text) > _METADATA_BYTES:
        raise NotAppended(
            f"micro-batch {what.batch} was written by {len(what.whom)} tasks, more than one decision can name. "
            "Nothing was committed; write with fewer (coalesce)"
        )
    with _Group(settings, query) as consumer:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, what.batch, text)], asynchronous=False)
        except KafkaException as error:
            raise librdkafka.build_cluster_error(
                settings, librdkafka.extract_kafka_error(error), doing=f"noting what {_PREFIX}{query} writes"
            ) from error


class _Group:
    """A consumer that only commits and asks; the group is the stream's own."""

    def __init__(self, settings: ConnectionSettings, query: str) -> None:
        group = {"group.id": f"{_PREFIX}{query}", "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = Consumer(settings.librdkafka(group))

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _open_ones(settings: ConnectionSettings) -> list[str]:
    found: list[str] = []
    for address in _brokers(settings):
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            connection = open_connection(settings, address)
            try:
                error, here = list_open_transactions(connection)
            finally:
                connection.close()
            if error not in COORDINATOR_LOADING_CODES or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if error:
            raise NotAppended(f"{address[0]}:{address[1]} of {settings.alias} does not list its transactions: "
                              f"{error_codes.describe_error_code(error)}")  # fmt: skip
        found += here
    return found


def _described(settings: ConnectionSettings, ids: Sequence[str]) -> dict[str, TransactionDescription]:
    """What their coordinators say of these; an id that nobody knows is not in it."""
    deadline = time.monotonic() + _PATIENCE_S
    while ids:
        found: dict[str, TransactionDescription] = {}
        moving = False
        for address in _brokers(settings):
            connection = open_connection(settings, address)
            try:
                answers = describe_transactions(connection, ids)
            finally:
                connection.close()
            found |= {who: seen for who, (error, seen) in answers.items() if error == error_codes.NONE}
            moving = moving or any(error in COORDINATOR_LOADING_CODES for error, _ in answers.values())
        if not moving or len(found) == len(ids) or time.monotonic() > deadline:
            return found
        time.sleep(0.2)
    return {}


def _brokers(settings: ConnectionSettings) -> list[tuple[str, int]]:
    connection = open_connection(settings)
    try:
        return list(connection.metadata(()).brokers.values())
    finally:
        connection.close()


def _producer(settings: ConnectionSettings, who: TransactionIdentity, *, bump: bool) -> TransactionalProducer:
    transactional_id, producer_id, epoch = who
    return TransactionalProducer(
        transactional_id,
        lambda address: open_connection(settings, address),
        bump,
        ProducerIdAndEpoch(producer_id, epoch),
    )
