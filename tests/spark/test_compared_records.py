"""An adoption and a proof call the same records equal, and see them at the same offsets (decision 0079)."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from tests.replicator.build import with_attributes, with_crc
from watershed.clusters.record_fingerprint import DIGEST_BYTES, encode_headers_bin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import FetchedPartition
from watershed.replicator.adoption.digest_reader import FetchDigester, PartitionRange
from watershed.replicator.adoption.log_digests import DigestedLogBuilder
from watershed.replicator.batch.codecs import CODEC_NAMES
from watershed.replicator.batch.records import RawRecord, build_raw_batch, encode_key_and_value
from watershed.spark.fingerprint import fingerprint_slices
from watershed.spark.reading.batch_decoding import locate_records, split_checked_batches

_LOG_APPEND_TIME = 0x08
_CONTENT = st.sampled_from((None, b"", b"a", b"ab", b"b"))
_HEADERS = st.lists(st.tuples(st.sampled_from((b"", b"h", b"i")), _CONTENT), max_size=2)
_RECORD = st.tuples(_CONTENT, _CONTENT, _HEADERS, st.sampled_from((-1, 0, 7, 1_700_000_000_000)))


@st.composite
def fetched_batches(draw: st.DrawFn) -> bytes:
    """Batches of records from so small a set that many are equal, with every codec, some with the broker's time."""
    out, base = bytearray(), draw(st.integers(0, 100))
    for records in draw(st.lists(st.lists(_RECORD, min_size=1, max_size=6), min_size=1, max_size=5)):
        raw = [
            RawRecord(offset, time, encode_key_and_value(key, value)[:-1] + encode_headers_bin(headers))
            for offset, (key, value, headers, time) in enumerate(records, base)
        ]
        batch = bytes(build_raw_batch(raw, draw(st.sampled_from(range(len(CODEC_NAMES)))), base + len(raw)).data)
        out += with_crc(with_attributes(batch, _LOG_APPEND_TIME)) if draw(st.booleans()) else batch
        base += len(raw) + draw(st.integers(0, 3))
    return bytes(out)


@given(fetched_batches(), st.booleans())
def test_both_hashes_find_the_same_records_equal(stored: bytes, timestamps: bool) -> None:
    answer = FetchedPartition(uuid.UUID(int=1), 0, 0, 1_000, 1_000, 0, memoryview(stored))
    everything = PartitionRange(ConnectionSettings(alias="a", bootstrap=("h:1",)), "t", 0, 0, 1_000)
    digester = FetchDigester(everything, b"k" * 32, DigestedLogBuilder(), timestamps)
    digester.take(answer, 0)
    log = digester.builder.finished()
    digests = [log.slice(index, index + 1) for index in range(len(log))]
    assert all(len(each) == DIGEST_BYTES for each in digests)

    prints = fingerprint_slices(locate_records(list(split_checked_batches(memoryview(stored)))), timestamps=timestamps)
    assert prints.offset.tolist() == [log.offset(index) for index in range(len(log))]
    pairs = set(zip(digests, prints.fp.tolist(), strict=True))
    assert len(pairs) == len(set(digests)) == len(set(prints.fp.tolist()))
