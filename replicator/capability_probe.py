"""`topology probe`: tries on a topic of our own what a cluster does, whatever its brokers list.

A broker that is not Apache Kafka may list a request and answer otherwise: take sequence numbers without checking them,
compress batches anew, put its own time into records. So a few batches are written for real, and what the log then holds
is compared with what was meant. The topic is deleted at the end, also after an error or an interrupt; the producer ids
and the transactional id that were used expire by themselves (`transactional.id.expiration.ms`).
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from crc32c import crc32c

from watershed.clusters.admin import Admin
from watershed.clusters.capabilities import read_capabilities
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.errors import (
    ClusterError,
    ProtocolError,
    RequestRefused,
    TopicMissing,
    Unanswered,
    Unauthorised,
    Unreachable,
)
from watershed.clusters.record_batch import BATCH_CRC_START, RECORD_BATCH_HEADER_BYTES, build_simple_batch
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_COMMITTED, FetchPartition, ProducedPartition, ProducePartition
from watershed.clusters.wire.topic_names import is_stand_in_id
from watershed.replicator.batch.codecs import CODEC_NAMES, compress_payload
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.aligned.log_end import decode_coordinator_epoch
from watershed.replicator.copy.aligned.target_log import TargetLog, take_only_answer
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.transactional_producer import TransactionalProducer
from watershed.replicator.errors import BadBatch
from watershed.replicator.partition_states import Halt
from watershed.replicator.probe_topic import create_probe_topic, require_topic_deletion
from watershed.topology import cluster_capabilities as names
from watershed.topology.cluster_capabilities import ClusterCapabilities, TriedCapability

_APPEARS_S: Final = 10.0
_PAUSE_S: Final = 0.1
_STORED_MS: Final = 1_000  # how long a Fetch may wait for a batch that was answered
_ATTEMPTS: Final = 50  # while a new topic's leader, or a transaction, is not ready yet
_ROUNDS: Final = 3  # of a whole attempt, while leaders or coordinators move
_ROUND_PAUSE_S: Final = 1.0
_PATIENCE_S: Final = 35.0  # for one attempt: above the 30 s that a Produce may wait for its replicas
_LARGEST_TRIED: Final = 16 << 20  # bytes; a probe must not cost more traffic than that
_USUAL_LARGEST: Final = 1_048_588  # bytes: Apache Kafka's default of message.max.bytes
_RECORDS: Final = 3  # of a small batch
_FRONT: Final = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_DAY_MS: Final = 86_400_000
_BEHIND_EPOCH: Final = 16  # bytes of a batch from here on are the producer's; base offset and leader epoch come before
# The cluster is busy or moves: the same batch may be sent again. That is right here only: who reads a probe's topic?
_NOT_NOW: Final = (
    error_codes.REINSPECT_CODES
    | error_codes.COORDINATOR_MOVING_CODES
    | {
        error_codes.UNKNOWN_TOPIC_ID,
        error_codes.CONCURRENT_TRANSACTIONS,
        error_codes.OFFSET_NOT_AVAILABLE,
        error_codes.NOT_CONTROLLER,
        error_codes.THROTTLING_QUOTA_EXCEEDED,
    }
)
# These answers say nothing of what the cluster can do.
_UNDECIDED: Final = _NOT_NOW | error_codes.AUTHORIZATION_CODES | {error_codes.TRANSACTION_ABORTABLE}
# Answers to a batch whose sequence number is not the next one (KIP-98, KIP-360).
_OUT_OF_ORDER: Final = frozenset(
    {
        error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        error_codes.DUPLICATE_SEQUENCE_NUMBER,
        error_codes.UNKNOWN_PRODUCER_ID,
        error_codes.INVALID_PRODUCER_EPOCH,
    }
)


def probe_cluster(
    settings: ConnectionSettings, say: Callable[[str, TriedCapability], None] = lambda _name, _tried: None
) -> ClusterCapabilities:
    """What the cluster's brokers list, and what it was seen to do. say: told each result as it is there.

    Raises ClusterError when the cluster cannot be used, or when the topic can be neither created nor deleted; the
    message then names what is left.
    """
    listed = read_capabilities(settings)
    with Admin(settings) as admin:
        admin.check_identity()
        require_topic_deletion(admin)
        with open_connection(settings) as connection:
            bump = connection.versions.transaction_version >= 2
        with create_probe_topic(settings, admin) as log, closing(log):
            tried = try_capabilities(admin, log, bump, say)
            topic_ids = not is_stand_in_id(log.topic_id)
    return replace(listed, tried=tried, topic_ids=topic_ids if listed.topic_ids is None else listed.topic_ids)


def try_capabilities(
    admin: ClusterProtocol, log: TargetLog, bump: bool, say: Callable[[str, TriedCapability], None]
) -> dict[str, TriedCapability]:
    """Tries everything on an empty log of our own, in an order in which it can be tried. bump: the cluster finalized
    transaction.version 2. Raises Unreachable when the cluster is gone, TopicMissing when the topic is."""
    trial = _Trial(admin, log, bump)
    tried: dict[str, TriedCapability] = {}
    for name, attempt in trial.list_attempts():
        tried[name] = _try(attempt, log)
        say(name, tried[name])
    return tried


def _try(attempt: Callable[[], TriedCapability], log: TargetLog) -> TriedCapability:
    """What it found. Tried again while the cluster is busy or moves, and after an answer that cannot be understood,
    which one bad connection may have garbled. Raises Unreachable when the cluster is gone, TopicMissing when the topic
    is."""
    deadline = time.monotonic() + _PATIENCE_S
    for number in range(_ROUNDS):
        try:
            return attempt()
        except (ClusterError, BadBatch, SessionLost) as error:
            found, is_passing = _judge_error(error)
        log.lost()
        with suppress(RequestRefused, Unauthorised, ProtocolError):  # whoever asks next is told the same
            log.confirm()
        if not is_passing or number == _ROUNDS - 1 or time.monotonic() > deadline:
            break
        time.sleep(_ROUND_PAUSE_S)
    return found


def _judge_error(error: ClusterError | BadBatch | SessionLost) -> tuple[TriedCapability, bool]:
    """What an error says of the cluster, and whether it may pass. Raises what says nothing of an attempt at all, such
    as WrongCluster and SecretMissing."""
    untried = f"it could not be tried: {error}"
    if isinstance(error, Unanswered):
        return TriedCapability(None, untried), True
    if isinstance(error, Unreachable):
        return TriedCapability(None, f"it could not be tried, the connection was lost: {error}"), False
    if isinstance(error, Unauthorised) or (isinstance(error, SessionLost) and isinstance(error.trouble, Halt)):
        return TriedCapability(None, untried), False
    if isinstance(error, TopicMissing):  # whether it is really gone is asked next
        return TriedCapability(None, untried), True
    if isinstance(error, ProtocolError | BadBatch):
        return TriedCapability(False, f"what the cluster answers cannot be understood: {error}"), True
    if not isinstance(error, RequestRefused | SessionLost):
        raise error
    if error.code in _UNDECIDED:
        return TriedCapability(None, untried), error.code not in error_codes.AUTHORIZATION_CODES
    return TriedCapability(False, str(error)), False


class _Written(NamedTuple):
    """A batch as it was sent, what the leader answered, and what stands in the log (None: nothing)."""

    sent: bytes
    answer: ProducedPartition
    stored: RawBatch | None

    @property
    def error(self) -> str:
        """Kafka's name of the error; "" without one."""
        return error_codes.describe_error_code(self.answer.error) if self.answer.error else ""


_WITHOUT_FIRST: Final = TriedCapability(None, "it could not be tried without a stored batch that has a producer id")


@dataclass(slots=True)
class _Trial:
    """One probe under way. bump: transaction.version 2 (`TransactionalProducer`)."""

    admin: ClusterProtocol
    log: TargetLog
    bump: bool
    producer_id: int = -1
    first: bytes = b""  # the first batch with this producer id, once it is stored
    coordinator_epoch: int | None = None  # as the newest marker has it
    transactional_id: str = field(default_factory=lambda: f"watershed-probe|{secrets.token_hex(6)}")

    def list_attempts(self) -> list[tuple[str, Callable[[], TriedCapability]]]:
        """In the order in which they can be tried; the record has them by name."""
        return [
            (names.IDEMPOTENCE, self.try_idempotence),
            (names.SEQUENCE_CHECK, self.try_sequence_check),
            (names.DESCRIBE_PRODUCERS, self.try_describe_producers),
            (names.LOG_ENDS, self.try_log_ends),
            (names.BYTE_FOR_BYTE, self.try_byte_for_byte),
            (names.TIMESTAMPS, self.try_timestamps),
            (names.LARGEST_BATCH, self.try_largest_batch),
            (names.DELETE_RECORDS, self.try_delete_records),
            (names.TRANSACTIONS, self.try_transactions),
            (names.MARKERS, self.try_markers),
            (names.COMPACTION, self.try_compaction),
            (
                names.CHECKSUMS,
                self.try_checksums,
            ),  # last: nobody can read behind a batch that is stored with a wrong one
        ]

    def try_idempotence(self) -> TriedCapability:
        """A batch keeps the producer id and the sequence number that it was sent with."""
        self.producer_id = self.log.leader().issue_producer_id()
        written = self._write(self._build_sequenced(0))
        if written.error:
            return TriedCapability(False, f"a batch with a producer id is answered {written.error}")
        self.first, stored = written.sent, written.stored
        if stored is None or (stored.producer_id, stored.producer_epoch, stored.base_sequence) != (
            self.producer_id,
            0,
            0,
        ):
            return TriedCapability(False, "a batch is stored without its producer id or sequence number")
        return TriedCapability(True, "batches keep their producer id and sequence numbers")

    def try_sequence_check(self) -> TriedCapability:
        """The same batch again is stored once, and one whose number is not the next one is refused (KIP-98)."""
        if not self.first:
            return _WITHOUT_FIRST
        end = self.log.range().end
        again = self._write(self.first)
        if self.log.range().end != end:
            return TriedCapability(False, "a batch that was sent twice is stored twice")
        if again.error and again.answer.error not in _OUT_OF_ORDER:
            return TriedCapability(None, f"it could not be tried: the same batch again is answered {again.error}")
        ahead = self._write(self._build_sequenced(1_000))
        if self.log.range().end != end:
            return TriedCapability(False, "a batch whose sequence number is not the next one is stored")
        if not ahead.error:
            return TriedCapability(
                False, "a batch whose sequence number is not the next one is answered without an error, and not stored"
            )
        if ahead.answer.error not in _OUT_OF_ORDER:
            return TriedCapability(
                None, f"a batch whose sequence number is not the next one is answered {ahead.error}, for another reason"
            )
        return TriedCapability(
            True, f"a batch that was sent twice is stored once, one out of order is answered {ahead.error}"
        )

    def try_describe_producers(self) -> TriedCapability:
        """The leader tells the last sequence number of our producer id (KIP-664)."""
        error, states = self.log.leader().describe_producers(self.log.topic, 0)
        if error:
            self._raise_undecided(error, "DescribeProducers")
            return TriedCapability(False, f"DescribeProducers is answered {error_codes.describe_error_code(error)}")
        if not self.first:
            return _WITHOUT_FIRST
        if (self.producer_id, _RECORDS - 1) not in {(each.producer_id, each.last_sequence) for each in states}:
            return TriedCapability(False, "DescribeProducers does not tell the last sequence number of a producer")
        return TriedCapability(True, "the leader tells the last sequence number of a producer")

    def try_log_ends(self) -> TriedCapability:
        """ListOffsets tells where a log ends: behind the last record of the last batch, by the offsets that are read
        back. A batch that is refused, or that nobody finds again, says nothing of it."""
        before = self.log.range().end
        written = self._write(build_simple_batch([b"%d" % n for n in range(_RECORDS)], timestamp=_now_ms()))
        if written.error:
            return TriedCapability(
                None, f"it could not be tried: a batch without a producer id is answered {written.error}"
            )
        end = self.log.range().end
        stored = [each.end for each in self.log.batches(before, max(end, before + 1), max_wait_ms=_STORED_MS)]
        if written.stored is not None:
            stored.append(written.stored.end)
        if not stored:
            return TriedCapability(None, "it could not be tried: the batch that was written is not found again")
        meant = max(stored)
        if end != meant:
            return TriedCapability(False, f"ListOffsets says that a log ends at {end} which ends at {meant}")
        return TriedCapability(True, "ListOffsets tells where a log ends")

    def try_checksums(self) -> TriedCapability:
        """A batch that was changed on its way is refused: its checksum is wrong then."""
        batch = bytearray(build_simple_batch([b"checked"], timestamp=_now_ms()))
        batch[BATCH_CRC_START - 1] ^= 0xFF  # the checksum's last byte
        end = self.log.range().end
        answer = self._send(bytes(batch))
        if self.log.range().end != end:
            return TriedCapability(False, "a batch whose checksum is wrong is stored")
        if not answer.error:
            return TriedCapability(
                False, "a batch whose checksum is wrong is answered without an error, and not stored"
            )
        return TriedCapability(
            True, f"a batch whose checksum is wrong is answered {error_codes.describe_error_code(answer.error)}"
        )

    def try_byte_for_byte(self) -> TriedCapability:
        """What is stored is what was sent, but for base offset and leader epoch."""
        refused, changed = [], []
        for codec, name in enumerate(CODEC_NAMES):
            plain = build_simple_batch([b"%d" % n * 50 for n in range(20)], timestamp=_now_ms())
            written = self._write(_compress(plain, codec))
            if written.error:
                refused.append(f"{name}: {written.error}")
            elif written.stored is None or not _is_same(written.sent, bytes(written.stored.data)):
                changed.append(name)
        more = f"; refused: {', '.join(refused)}" if refused else ""
        if changed:
            return TriedCapability(
                False, f"batches are stored otherwise than they were sent ({', '.join(changed)}){more}"
            )
        if len(refused) == len(CODEC_NAMES):
            return TriedCapability(False, f"no batch is taken: {', '.join(refused)}")
        return TriedCapability(True, f"batches are stored byte for byte as they were sent{more}")

    def try_timestamps(self) -> TriedCapability:
        """A record keeps the timestamp that its producer gave it."""
        given = _now_ms() - _DAY_MS
        written = self._write(build_simple_batch([b"t"], timestamp=given))
        if written.error:
            return TriedCapability(False, f"a record of yesterday is answered {written.error}")
        if written.stored is None or written.stored.max_timestamp != given or written.answer.append_time != -1:
            return TriedCapability(False, "records get the broker's own time (message.timestamp.type)")
        return TriedCapability(True, "records keep their timestamps")

    def try_largest_batch(self) -> TriedCapability:
        """The largest batch that a topic takes which is created without configs, in bytes, up to 16 MiB."""
        said = self.admin.effective_configs([self.log.topic]).get(self.log.topic, {}).get("max.message.bytes", "")
        limit = int(said) if said.isdecimal() else _USUAL_LARGEST
        size = min(limit, _LARGEST_TRIED)
        taken = self._write(_build_of_size(size))
        if taken.error:
            return TriedCapability(False, f"a batch of {size:,} bytes is answered {taken.error}")
        if size < limit:
            return TriedCapability(True, f"batches of {size:,} bytes are taken; larger ones were not tried", size)
        larger = self._write(_build_of_size(size + 1))
        told = f"larger ones are answered {larger.error}" if larger.error else "larger ones are taken, too"
        return TriedCapability(True, f"batches of {size:,} bytes are taken, {told}", size)

    def try_delete_records(self) -> TriedCapability:
        """The log start moves to where records are deleted (KIP-107)."""
        there = self.log.range()
        if there.end == 0:
            return TriedCapability(None, "it could not be tried, as no record could be written")
        self.log.delete_below(1)
        start = self.log.range().start
        if start < 1:
            return TriedCapability(False, f"DeleteRecords is answered without an error, but the log starts at {start}")
        return TriedCapability(True, "records can be deleted up to an offset")

    def try_transactions(self) -> TriedCapability:
        """One transaction is committed and one aborted; a reader of committed records is told of the aborted one."""
        producer = TransactionalProducer(self.transactional_id, self.log.connect, self.bump)
        try:
            producer.begin()
            before = self.log.range().end  # behind the marker of a transaction that an earlier round left open
            for commit in (True, False):
                if not self.bump:
                    producer.add(((self.log.topic, 0),))
                written = self._write(self._build_transactional(producer), self.transactional_id)
                if written.error:
                    return TriedCapability(False, f"a batch of a transaction is answered {written.error}")
                producer.end(commit=commit)
        finally:
            producer.close()
        markers = self._wait_for_markers(before, 2)
        if len(markers) < 2:
            return TriedCapability(False, f"two transactions have ended, but {len(markers)} of two markers are stored")
        self.coordinator_epoch = decode_coordinator_epoch(markers[-1])
        part = FetchPartition(self.log.topic_id, 0, before, max_bytes=1 << 20)
        answer = fetch_one(self.log.leader(), part, isolation=READ_COMMITTED)
        self._raise_undecided(answer.error, "Fetch")
        if answer.error or not answer.aborted:
            return TriedCapability(False, "readers of committed records are not told of an aborted transaction")
        return TriedCapability(True, "transactions are committed and aborted, and readers are told which")

    def try_markers(self) -> TriedCapability:
        """A marker without a transaction takes one offset (WriteTxnMarkers); `offsets: aligned` closes gaps so."""
        producer = TransactionalProducer(self.transactional_id, self.log.connect, self.bump)
        try:
            producer.begin()
        finally:
            producer.close()
        before = self.log.range().end
        epoch = self.coordinator_epoch
        error = self.log.leader().write_markers(self.log.topic, 0, producer.identity, 1, epoch or 0)
        if error == error_codes.CLUSTER_AUTHORIZATION_FAILED:
            return TriedCapability(None, f"it could not be tried: ALTER on cluster {self.log.alias} is missing")
        if error == error_codes.TRANSACTION_COORDINATOR_FENCED and epoch is None:
            return TriedCapability(None, "it could not be tried without a transaction: its marker has the epoch to use")
        self._raise_undecided(error, "WriteTxnMarkers")
        if error:
            return TriedCapability(False, f"WriteTxnMarkers is answered {error_codes.describe_error_code(error)}")
        if not self._wait_for_markers(before, 1):
            return TriedCapability(False, "WriteTxnMarkers is answered without an error, but no marker is stored")
        return TriedCapability(True, "a marker without a transaction takes one offset")

    def try_compaction(self) -> TriedCapability:
        """The topic takes `cleanup.policy: compact`; Watershed's control topics need it."""
        self.admin.alter_topic_configs(self.log.topic, {"cleanup.policy": "compact"})
        deadline = time.monotonic() + _APPEARS_S
        while True:
            policy = self.admin.effective_configs([self.log.topic])[self.log.topic].get("cleanup.policy")
            if policy == "compact":
                return TriedCapability(True, "topics take cleanup.policy=compact")
            if time.monotonic() > deadline:
                return TriedCapability(False, f"cleanup.policy=compact is accepted, but it stays {policy}")
            time.sleep(_PAUSE_S)

    def _build_sequenced(self, sequence: int) -> bytes:
        return build_simple_batch(
            [b"%d" % n for n in range(_RECORDS)],
            timestamp=_now_ms(),
            producer_id=self.producer_id,
            epoch=0,
            base_sequence=sequence,
        )

    def _build_transactional(self, producer: TransactionalProducer) -> bytes:
        return build_simple_batch(
            [b"%d" % n for n in range(_RECORDS)],
            timestamp=_now_ms(),
            producer_id=producer.identity.producer_id,
            epoch=producer.identity.epoch,
            base_sequence=producer.sequence((self.log.topic_id, 0), _RECORDS),
            transactional=True,
        )

    def _write(self, batch: bytes, transactional_id: str | None = None) -> _Written:
        """Sends the batch as `_send`, and reads what stands where the answer says. Raises ClusterError."""
        answer = self._send(batch, transactional_id)
        stored = None
        if not answer.error and answer.base_offset >= 0:
            stored = next(self.log.batches(answer.base_offset, answer.base_offset + 1, max_wait_ms=_STORED_MS), None)
        return _Written(batch, answer, stored)

    def _send(self, batch: bytes, transactional_id: str | None = None) -> ProducedPartition:
        """Sends the batch until the leader has an answer to it.

        Raises ClusterError, also for an answer that says nothing of what the cluster can do (`_UNDECIDED`)."""
        deadline = time.monotonic() + _PATIENCE_S
        for _ in range(_ATTEMPTS):
            leader = self.log.leader()
            leader.send_produce((ProducePartition(self.log.topic_id, 0, (batch,)),), transactional_id=transactional_id)
            answer = take_only_answer(leader.receive_produce(), "Produce")
            if answer.error not in _NOT_NOW or time.monotonic() > deadline:
                break
            if answer.error != error_codes.CONCURRENT_TRANSACTIONS:
                self.log.lost()
            time.sleep(_PAUSE_S)
        self._raise_undecided(answer.error, "Produce")
        return answer

    def _raise_undecided(self, error: int, doing: str) -> None:
        if error in _UNDECIDED:
            raise self.log.refused(doing, error)

    def _wait_for_markers(self, start: int, count: int) -> list[RawBatch]:
        """The markers from `start` on; fewer where they do not appear in time."""
        deadline = time.monotonic() + _APPEARS_S
        while True:
            found = [each for each in self.log.batches(start, self.log.range().end) if each.control]
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE_S)


def _compress(plain: bytes, codec: int) -> bytes:
    """The same batch with its records compressed."""
    payload = compress_payload(codec, plain[RECORD_BATCH_HEADER_BYTES:])
    back = codec.to_bytes(2, "big") + plain[BATCH_CRC_START + 2 : RECORD_BATCH_HEADER_BYTES]
    length = RECORD_BATCH_HEADER_BYTES - 12 + len(payload)
    return _FRONT.pack(0, length, -1, 2, crc32c(payload, crc32c(back))) + back + payload


def _now_ms() -> int:
    return int(time.time() * 1000)


def _is_same(sent: bytes, stored: bytes) -> bool:
    return sent[8:12] == stored[8:12] and sent[_BEHIND_EPOCH:] == stored[_BEHIND_EPOCH:]


def _build_of_size(size: int) -> bytes:
    """A batch of one record that has `size` bytes; where no value gives exactly that many, a few more."""
    value = max(0, size - 90)
    while len(batch := build_simple_batch([b"\0" * value], timestamp=_now_ms())) < size:
        value += size - len(batch)
    return batch
