"""What a flow's compression would save, from a few batches of each topic."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.replicator.build import NOW, answer, batch_of, commit, data
from watershed.clusters.cluster_protocol import TopicShape
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator import compression_forecast
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.compression_forecast import (
    CompressionForecast,
    SampledBytes,
    forecast_compression,
    measure_batches,
    weigh_samples,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

ZSTD = EgressCompression("zstd", 3)


def text(base: int, count: int, codec: str = "none") -> bytes:
    records = [BatchRecord(at, NOW, None, b'{"order": %9d, "state": "new"}' % (base + at)) for at in range(count)]
    return assign_batch_offset(build_batch(records, codec=codec), base, 0)


def test_a_sample_is_measured_by_what_a_worker_does_with_it() -> None:
    log = [text(0, 300), text(300, 300, "gzip"), commit(600, 7), text(601, 4), text(605, 4)]
    found = measure_batches([batch_of(each) for each in log], ZSTD)
    worker = select_batches(answer(*log), 0, terms=RepackTerms(compression=ZSTD))
    assert found.saved == sum(batch.saved for batch in worker.batches) > 0
    assert found.plain - found.saved == sum(len(batch.data) for batch in worker.batches)
    assert found.offsets == 609
    gzipped = measure_batches([batch_of(log[1])], ZSTD)
    assert gzipped == SampledBytes(len(log[1]), 0, 300), "a codec is kept, and its bytes count"
    assert measure_batches([], ZSTD) == SampledBytes()


def test_a_sample_begins_where_its_first_batch_does() -> None:
    """A Fetch in the middle of a log brings whole batches, also old ones with holes in front of them."""
    found = measure_batches([batch_of(data(40, 200)), batch_of(data(900, 3))], ZSTD)
    assert found.offsets == 863
    assert found.saved > 0


def test_topics_count_by_the_bytes_that_they_hold() -> None:
    samples = {"large": SampledBytes(1_000, 900, 10), "small": SampledBytes(1_000, 0, 100), "empty": SampledBytes()}
    offsets = {"large": 1_000, "small": 1_000, "empty": 50}
    assert weigh_samples(samples, offsets) == pytest.approx(90_000 / 110_000)
    assert weigh_samples(samples, {"large": 100, "small": 1_000, "empty": 0}) == pytest.approx(9_000 / 20_000)
    assert weigh_samples({"empty": SampledBytes()}, {"empty": 50}) is None
    assert weigh_samples({}, {}) is None


@pytest.mark.parametrize(
    ("saved", "unread", "told"),
    [
        (0.774, "", "a-to-b compresses (zstd, level 3): about 77% fewer bytes, by 190 KiB of 3 of 4 topics"),
        (0.01, "", "by 190 KiB of 3 of 4 topics; is most of it compressed at the source already?"),
        (None, "", "a-to-b compresses (zstd, level 3): nothing to forecast from, no batch was found in 4 topics"),
        (0.5, "READ is missing", "3 of 4 topics (not read: READ is missing)"),
    ],
)
def test_what_people_read(saved: float | None, unread: str, told: str) -> None:
    forecast = CompressionForecast("a-to-b", ZSTD, 4, 3, 190 << 10, saved, unread)
    assert told in str(forecast)
    assert forecast.to_json() == {
        "flow": "a-to-b", "codec": "zstd", "level": 3, "topics": 4, "sampled_topics": 3, "sampled_bytes": 194_560,
        "saved_share": saved, "unread": unread or None,
    }  # fmt: skip


class Source:
    """Topics of a cluster that answers as its brokers would: without READ on a topic it still tells where it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topics: dict[str, tuple[int, list[bytes]]]) -> None:
        self.topics, self.asked = topics, list[tuple[str, int]]()
        monkeypatch.setattr(compression_forecast, "Admin", lambda _: nullcontext(self))
        monkeypatch.setattr(compression_forecast, "BrokerPool", lambda _: nullcontext(None))
        monkeypatch.setattr(compression_forecast, "read_leader_logs", self.logs)
        monkeypatch.setattr(compression_forecast, "read_batches_at", self.read)

    def shapes(self) -> dict[str, TopicShape]:
        return {topic: TopicShape(2, 1) for topic in self.topics}

    def logs(
        self, _source: object, partitions: list[tuple[str, int]], _isolation: int
    ) -> dict[tuple[str, int], LeaderLog | ClusterError]:
        leader = BrokerAddress("k1", 9092)
        return {
            (topic, number): ClusterError(f"{topic} has no leader")
            if number and topic == "torn"
            else LeaderLog(uuid.UUID(int=1), leader, 0, self.topics[topic][0] // (number + 1))
            for topic, number in partitions
        }

    def read(
        self, _pool: object, wanted: dict[PartitionKey, tuple[LeaderLog, str, int]]
    ) -> dict[PartitionKey, list[RawBatch] | ClusterError]:
        self.asked += [(key.topic, at) for key, (_, _, at) in wanted.items()]
        if any(topic == "gone" for _, topic, _ in wanted.values()):
            raise Unreachable("its leader does not answer")
        return {
            key: [batch_of(each) for each in self.topics[key.topic][1]]
            or ClusterError(f"READ on {key.topic} is missing")
            for key in wanted
        }


def forecast(*topics: str) -> CompressionForecast:
    selected = TopicSelection(tuple(Selector("literal", topic) for topic in topics))
    flows = (PlanFlow("a-to-b", "a", "b", selected, compression=ZSTD), PlanFlow("plain", "a", "b", selected))
    plan = seal_plan(Plan("shop", (PlanCluster("a", ("k1:9092",)), PlanCluster("b", ("k2:9092",))), flows))
    [found] = forecast_compression(plan, lambda alias: ConnectionSettings(alias, ("k1:9092",)))
    return found


def test_the_fullest_partition_is_read_in_its_middle_and_near_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [text(0, 300)]
    source = Source(monkeypatch, {"orders": (5_000, log), "few": (100, log), "empty": (0, []), "other": (9, log)})
    found = forecast("orders", "few", "empty")
    assert source.asked == [("orders", 2_500), ("few", 50), ("orders", 4_000), ("few", 0)]
    assert (found.topics, found.sampled, found.unread) == (3, 2, "")
    assert found.sampled_bytes == 4 * len(log[0])
    alone = measure_batches([batch_of(log[0])], ZSTD)
    assert found.saved == pytest.approx(alone.saved / alone.plain)


def test_a_topic_that_cannot_be_read_keeps_no_other_from_its_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    Source(monkeypatch, {"orders": (5_000, [text(0, 300)]), "secret": (5_000, [])})
    found = forecast("orders", "secret")
    assert (found.topics, found.sampled) == (2, 1)
    assert found.saved is not None
    assert found.unread == "READ on secret is missing"


def test_without_leaders_and_connections_a_plan_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    Source(monkeypatch, {"torn": (5_000, [text(0, 300)])})
    assert forecast("torn").unread == "torn has no leader"
    Source(monkeypatch, {"gone": (5_000, [text(0, 300)])})
    found = forecast("gone")
    assert (found.saved, found.sampled, found.unread) == (None, 0, "its leader does not answer")


def test_a_flow_that_selects_nothing_yet_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Source(monkeypatch, {"other": (9, [])})
    assert "no batch was found in 0 topics" in str(forecast("orders"))


def test_the_account_that_plans_may_read_and_need_not() -> None:
    flow = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
    clusters = (PlanCluster("a", ("k1:9092",)), PlanCluster("b", ("k2:9092",)))
    plain, packed = (
        set(derive_required_rights(seal_plan(Plan("shop", clusters, (each,))), "observe", "a"))
        for each in (flow, replace(flow, compression=ZSTD))
    )
    [more] = packed - plain
    assert plain <= packed
    assert (more.operation, more.name, more.optional) == ("READ", "orders", True)
