"""`topology probe` on a cluster in memory that does what Kafka does, and on ones that only say so."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from watershed.clusters.errors import ProtocolError, RequestRefused, TopicMissing, Unauthorised, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.record_batch import build_simple_batch, decode_batch_header, decode_batch_records
from watershed.clusters.wire import answered_fetch, error_codes
from watershed.clusters.wire.messages import LATEST, OffsetAnswer, ProducedPartition, ProducePartition
from watershed.replicator import capability_probe
from watershed.replicator.capability_probe import try_capabilities
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.topology.cluster_capabilities import TriedCapability

TOPIC = "watershed.probe-1"
NAMES = {
    "idempotence",
    "sequence_check",
    "describe_producers",
    "byte_for_byte",
    "timestamps",
    "largest_batch",
    "delete_records",
    "transactions",
    "markers",
    "compaction",
    "log_ends",
    "checksums",
}


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_probe, "_APPEARS_S", 0.0)
    monkeypatch.setattr(capability_probe, "_PAUSE_S", 0.0)
    monkeypatch.setattr(capability_probe, "_STORED_MS", 0)
    monkeypatch.setattr(capability_probe, "_ROUND_PAUSE_S", 0.0)


def probe(
    wire: type[FakeWire] = FakeWire,
    cluster: FakeCluster | None = None,
    bump: bool = True,
    configs: dict[str, str] | None = None,
) -> dict[str, TriedCapability]:
    cluster = cluster or FakeCluster("c")
    topic = cluster.create_topic(TOPIC, 1, 1, configs)
    said: list[str] = []
    log = TargetLog(lambda _address: wire(cluster), "c", TOPIC, topic.topic_id, 0)
    found = try_capabilities(cluster, log, bump, lambda name, _tried: said.append(name))
    assert list(found) == said
    return found


def failed(found: dict[str, TriedCapability]) -> dict[str, str]:
    return {name: each.told for name, each in found.items() if each.works is False}


@pytest.mark.parametrize("bump", [False, True])
def test_a_cluster_that_does_what_kafka_does(bump: bool) -> None:
    found = probe(bump=bump)
    assert found.keys() == NAMES
    assert {name: each.told for name, each in found.items() if not each.works} == {}
    assert found["largest_batch"].number == 1_048_588


class StoresAsItLikes(FakeWire):
    """Stores what `change` makes of a batch, without any check; answers as if it were right."""

    def send_produce(self, partitions: tuple[ProducePartition, ...], **_more: Any) -> None:
        (part,) = partitions
        log = self._cluster.log(TOPIC, 0)
        stored = self.change(b"".join(part.batch))
        base = log.write(stored, int(time.time() * 1000))
        self._answers.append([ProducedPartition(part.topic_id, 0, 0, base, 0)])

    def change(self, batch: bytes) -> bytes:
        return batch


class EndsEarly(FakeWire):
    """As Tansu 0.6.0: behind the first record of the last batch, here of three."""

    def list_offsets(
        self, partitions: tuple[tuple[str, int], ...], timestamp: int, *, isolation: int = 0
    ) -> list[OffsetAnswer]:
        told = super().list_offsets(partitions, timestamp, isolation=isolation)
        return [
            replace(each, offset=each.offset - 2) if each.offset > 2 and timestamp == LATEST else each for each in told
        ]


class WithoutProducer(StoresAsItLikes):
    def change(self, batch: bytes) -> bytes:
        if decode_batch_header(batch).producer_id < 0:
            return batch
        return build_simple_batch([each.value for each in decode_batch_records(batch)])


class OwnTime(FakeWire):
    def send_produce(self, partitions: tuple[ProducePartition, ...], **more: Any) -> None:
        super().send_produce(partitions, **more)
        (answer,) = self._answers.pop()
        self._answers.append([replace(answer, append_time=5)])


class Recompresses(FakeWire):
    def send_produce(self, partitions: tuple[ProducePartition, ...], **more: Any) -> None:
        (part,) = partitions
        batch = b"".join(part.batch)
        head = decode_batch_header(batch)
        if head.codec and head.producer_id < 0:
            batch = build_simple_batch([b"%d" % n * 50 for n in range(20)], timestamp=head.base_timestamp)
        super().send_produce((ProducePartition(part.topic_id, 0, (batch,)),), **more)


class NoStates(FakeWire):
    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
        return 0, []


class KeepsRecords(FakeWire):
    def delete_records(self, topic: str, partition: int, before: int, timeout_ms: int = 30_000) -> tuple[int, int]:
        return 0, before


class NoMarkers(FakeWire):
    def write_markers(self, *_: Any, **__: Any) -> int:
        return 0


class NothingEnds(FakeWire):
    def end_transaction(self, _id: str, producer: Any, *, commit: bool, bump: bool) -> tuple[int, Any]:
        return 0, producer


class Refuses(FakeWire):
    def issue_producer_id(self) -> int:
        raise RequestRefused("too old to be asked init_producer_id")


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (StoresAsItLikes, {"sequence_check": "a batch that was sent twice is stored twice"}),
        (StoresAsItLikes, {"checksums": "a batch whose checksum is wrong is stored"}),
        (EndsEarly, {"log_ends": "ListOffsets says that a log ends at 4 which ends at 6"}),
        (WithoutProducer, {"idempotence": "a batch is stored without its producer id or sequence number"}),
        (OwnTime, {"timestamps": "records get the broker's own time (message.timestamp.type)"}),
        (
            Recompresses,
            {"byte_for_byte": "batches are stored otherwise than they were sent (gzip, snappy, lz4, zstd)"},
        ),
        (NoStates, {"describe_producers": "DescribeProducers does not tell the last sequence number of a producer"}),
        (KeepsRecords, {"delete_records": "DeleteRecords is answered without an error, but the log starts at 0"}),
        (NoMarkers, {"markers": "WriteTxnMarkers is answered without an error, but no marker is stored"}),
        (NothingEnds, {"transactions": "two transactions have ended, but 0 of two markers are stored"}),
        (Refuses, {"idempotence": "too old to be asked init_producer_id"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_a_cluster_only_says_it_does_is_found(wire: type[FakeWire], expected: dict[str, str]) -> None:
    found = failed(probe(wire))
    assert {name: found.get(name) for name in expected} == expected
    assert found.keys() >= expected.keys()


def test_what_needs_a_producer_id_is_not_tried_without_one() -> None:
    found = probe(Refuses)
    assert (found["sequence_check"].works, found["describe_producers"].works) == (None, None)


def test_a_right_that_is_missing_says_nothing_of_the_cluster() -> None:
    cluster = FakeCluster("c")
    cluster.may_alter = False
    found = probe(cluster=cluster)
    assert found["markers"].works is None
    assert "ALTER on cluster c is missing" in found["markers"].told


class NotAllowed(FakeWire):
    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
        raise Unauthorised("READ is missing")


class LosesConnections(FakeWire):
    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
        raise Unreachable("the broker closed the connection")


@pytest.mark.parametrize("wire", [NotAllowed, LosesConnections])
def test_what_could_not_be_tried_is_not_held_against_the_cluster(wire: type[FakeWire]) -> None:
    found = probe(wire)
    assert found["describe_producers"].works is None
    assert {name for name, each in found.items() if each.works} == NAMES - {"describe_producers"}


def test_a_cluster_that_is_gone_ends_the_probe() -> None:
    cluster = FakeCluster("c")

    class Gone(FakeWire):
        def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
            cluster.stop()
            raise Unreachable("the broker closed the connection")

    with pytest.raises(Unreachable):
        probe(Gone, cluster)


@pytest.mark.parametrize(
    ("configs", "size"), [({"max.message.bytes": "2000000"}, 2_000_000), ({"max.message.bytes": "99000000"}, 16 << 20)]
)
def test_the_largest_batch_is_tried_up_to_16_mib(configs: dict[str, str], size: int) -> None:
    found = probe(configs=configs)["largest_batch"]
    assert (found.works, found.number) == (True, size)


NEED_PRODUCE = {"idempotence", "sequence_check", "byte_for_byte", "timestamps", "largest_batch", "transactions"}


class Answers(FakeWire):
    """Answers every Produce with `error` in place of storing it, as long as `times` lasts."""

    error = error_codes.NONE
    times = 1 << 20

    def send_produce(self, partitions: tuple[ProducePartition, ...], **more: Any) -> None:
        (part,) = partitions
        if self.is_meant(b"".join(part.batch)) and type(self).times > 0:
            type(self).times -= 1
            self._answers.append([ProducedPartition(part.topic_id, part.partition, self.error, -1, -1)])
        else:
            super().send_produce(partitions, **more)

    def is_meant(self, batch: bytes) -> bool:
        return True


def answering(error: int, times: int = 1 << 20, base: type[Answers] = Answers) -> type[Answers]:
    return type("Answering", (base,), {"error": error, "times": times})


@pytest.mark.parametrize(
    "error",
    [
        error_codes.TOPIC_AUTHORIZATION_FAILED,
        error_codes.CLUSTER_AUTHORIZATION_FAILED,
        error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        error_codes.NOT_ENOUGH_REPLICAS,
        error_codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        error_codes.KAFKA_STORAGE_ERROR,
        error_codes.THROTTLING_QUOTA_EXCEEDED,
        error_codes.UNKNOWN_TOPIC_ID,
    ],
    ids=error_codes.describe_error_code,
)
def test_an_answer_that_says_nothing_of_the_cluster_is_not_held_against_it(error: int) -> None:
    found = probe(answering(error))
    assert failed(found) == {}
    assert {name for name, each in found.items() if each.works is None} >= NEED_PRODUCE


def test_what_passes_is_tried_again() -> None:
    found = probe(answering(error_codes.NOT_ENOUGH_REPLICAS, times=20))
    assert {name: each.told for name, each in found.items() if not each.works} == {}


@pytest.mark.parametrize("code", [error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error_codes.NOT_COORDINATOR])
def test_a_coordinator_that_refuses_the_account_or_moves_is_no_answer(code: int) -> None:
    class Coordinator(FakeWire):
        def end_transaction(self, _id: str, producer: Any, *, commit: bool, bump: bool) -> tuple[int, Any]:
            return code, producer

    found = probe(Coordinator)
    assert found["transactions"].works is None
    assert error_codes.describe_error_code(code) in found["transactions"].told


def test_a_coordinator_that_has_moved_is_asked_again() -> None:
    left = [error_codes.NOT_COORDINATOR] * 2

    class Moves(FakeWire):
        def end_transaction(self, _id: str, producer: Any, *, commit: bool, bump: bool) -> tuple[int, Any]:
            return (left.pop(), producer) if left else super().end_transaction(_id, producer, commit=commit, bump=bump)

    found = probe(Moves)
    assert {name: each.told for name, each in found.items() if not each.works} == {}
    assert left == []


@pytest.mark.parametrize(
    ("code", "works"),
    [
        (error_codes.TOPIC_AUTHORIZATION_FAILED, None),
        (error_codes.NOT_LEADER_OR_FOLLOWER, None),
        (error_codes.UNSUPPORTED_VERSION, False),
    ],
)
def test_what_describe_producers_is_answered_is_judged_by_its_code(code: int, works: bool | None) -> None:
    class Describes(FakeWire):
        def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
            return code, []

    assert probe(Describes)["describe_producers"].works is works


class AnswersAhead(Answers):
    def is_meant(self, batch: bytes) -> bool:
        return decode_batch_header(batch).base_sequence == 1_000


@pytest.mark.parametrize(
    ("error", "works"),
    [
        (error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (error_codes.UNKNOWN_PRODUCER_ID, True),
        (error_codes.INVALID_PRODUCER_EPOCH, True),
        (error_codes.INVALID_RECORD, None),
        (error_codes.POLICY_VIOLATION, None),
        (error_codes.NOT_ENOUGH_REPLICAS, None),
        (error_codes.TOPIC_AUTHORIZATION_FAILED, None),
        (error_codes.NONE, False),
    ],
    ids=lambda value: error_codes.describe_error_code(value) if type(value) is int else "",
)
def test_only_an_error_about_the_sequence_number_is_its_check(error: int, works: bool | None) -> None:
    assert probe(answering(error, base=AnswersAhead))["sequence_check"].works is works


def test_a_sequence_number_cannot_be_out_of_order_behind_a_batch_that_was_not_stored() -> None:
    found = probe(answering(error_codes.INVALID_RECORD))
    assert (found["idempotence"].works, found["sequence_check"].works) == (False, None)


class GarblesOffsets(FakeWire):
    """Names the partition twice in its answers about log ends, as long as `times` lasts."""

    times = 1 << 20

    def list_offsets(self, *arguments: Any, **more: Any) -> list[Any]:
        type(self).times -= 1
        told = super().list_offsets(*arguments, **more)
        return told * 2 if type(self).times >= 0 else told


class GarblesProduce(FakeWire):
    def receive_produce(self) -> list[ProducedPartition]:
        super().receive_produce()
        raise ProtocolError("an answer to Produce cannot be read")


@pytest.mark.parametrize(
    ("wire", "name", "told"),
    [
        (GarblesOffsets, "sequence_check", "ListOffsets for one partition is answered for 2"),
        (GarblesProduce, "idempotence", "an answer to Produce cannot be read"),
    ],
)
def test_an_answer_that_cannot_be_understood_does_not_end_the_probe(wire: type[FakeWire], name: str, told: str) -> None:
    found = probe(wire)
    assert found.keys() == NAMES
    assert (found[name].works, told in found[name].told) == (False, True)


def test_one_answer_that_cannot_be_understood_may_be_the_connection() -> None:
    wire = type("GarblesOnce", (GarblesOffsets,), {"times": 1})
    assert {name: each.told for name, each in probe(wire).items() if not each.works} == {}


class OverQuota(FakeWire):
    """Answers that leave the partition out, as long as `times` lasts: over a quota a broker answers a Fetch so."""

    times = 1 << 20

    def is_silent(self) -> bool:
        type(self).times -= 1
        return type(self).times >= 0

    def fetch(self, *arguments: Any, **more: Any) -> list[Any]:
        return [] if self.is_silent() else super().fetch(*arguments, **more)


class SilentProduce(OverQuota):
    def fetch(self, *arguments: Any, **more: Any) -> list[Any]:
        return FakeWire.fetch(self, *arguments, **more)

    def receive_produce(self) -> list[ProducedPartition]:
        told = super().receive_produce()
        return [] if self.is_silent() else told


class SilentOffsets(SilentProduce):
    def receive_produce(self) -> list[ProducedPartition]:
        return FakeWire.receive_produce(self)

    def list_offsets(self, *arguments: Any, **more: Any) -> list[Any]:
        told = super().list_offsets(*arguments, **more)
        return [] if self.is_silent() else told


@pytest.mark.parametrize("base", [OverQuota, SilentProduce, SilentOffsets])
@pytest.mark.parametrize("times", [1, 1 << 20])
def test_an_answer_without_the_partition_says_nothing_of_the_cluster(
    base: type[OverQuota], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered_fetch, "_PATIENCE_S", 0.0 if times > 1 else 30.0)
    monkeypatch.setattr(answered_fetch, "_SHORTEST_MS", 0)
    wire = type("Silent", (base,), {"times": times})
    found = probe(wire)
    assert failed(found) == {}
    assert times > 1 or not {name for name, each in found.items() if not each.works}


def test_a_quota_that_is_used_up_during_the_probe_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it is used up nothing can be tried; what was tried before and comes afterwards counts."""
    monkeypatch.setattr(answered_fetch, "_PATIENCE_S", 0.0)
    cluster = FakeCluster("c")

    class UsedUp(FakeWire):
        def fetch(self, partitions: Any, **more: Any) -> list[Any]:
            return [] if partitions[0].max_bytes > 1 else super().fetch(partitions, **more)

    found = probe(UsedUp, cluster)
    assert failed(found) == {}
    assert {name for name, each in found.items() if each.works is None} >= {"idempotence", "byte_for_byte", "log_ends"}


class AnswersWithoutProducer(Answers):
    def is_meant(self, batch: bytes) -> bool:
        return decode_batch_header(batch).producer_id < 0


@pytest.mark.parametrize("error", [error_codes.POLICY_VIOLATION, error_codes.INVALID_RECORD])
def test_a_batch_that_is_refused_says_nothing_of_log_ends(error: int) -> None:
    tried = probe(answering(error, base=AnswersWithoutProducer))["log_ends"]
    assert (tried.works, error_codes.describe_error_code(error) in tried.told) == (None, True)


class WithoutBaseOffset(FakeWire):
    def receive_produce(self) -> list[ProducedPartition]:
        return [replace(each, base_offset=-1) for each in super().receive_produce()]


class EndsEarlyWithoutBaseOffset(WithoutBaseOffset, EndsEarly):
    pass


@pytest.mark.parametrize(("wire", "works"), [(WithoutBaseOffset, True), (EndsEarlyWithoutBaseOffset, False)])
def test_log_ends_are_held_against_what_is_read_back(wire: type[FakeWire], works: bool) -> None:
    assert probe(wire)["log_ends"].works is works


def test_a_batch_that_is_not_found_again_says_nothing_of_log_ends() -> None:
    class Forgets(FakeWire):
        """Answers every batch, and stores none."""

        def send_produce(self, partitions: tuple[ProducePartition, ...], **_more: Any) -> None:
            (part,) = partitions
            self._answers.append([ProducedPartition(part.topic_id, 0, 0, -1, 0)])

    assert probe(Forgets)["log_ends"].works is None


def test_a_topic_that_somebody_deleted_ends_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster("c")
    monkeypatch.setattr("watershed.replicator.copy.aligned.target_log._HEARD_S", 0.0)

    class Deleted(FakeWire):
        def describe_producers(self, topic: str, partition: int) -> tuple[int, list[Any]]:
            cluster.delete_topic(TOPIC)
            raise TopicMissing("it is gone")

    with pytest.raises(TopicMissing):
        probe(Deleted, cluster)
