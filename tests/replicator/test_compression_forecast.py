"""What a flow's compression would save, from a few batches of each topic."""

from __future__ import annotations

import pytest

from clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from replicator.batch.batch_selection import select_batches
from replicator.batch.repack import RepackTerms
from replicator.compression_forecast import CompressionForecast, SampledBytes, measure_batches, weigh_samples
from tests.replicator.build import NOW, answer, batch_of, commit, data
from topology.egress_compression import EgressCompression

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
