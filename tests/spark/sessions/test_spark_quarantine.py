"""Records in quarantine: told from lost ones by their content, in memory and on brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.brokers.test_real_quarantine import TAKES_ALL, TAKES_LITTLE, mixed
from tests.replicator.real import applied, plan_for, put, read_all, settings_of, workers
from tests.replicator.real import producer as producer_of
from tests.replicator.states_scene import QUICK, create, produce, until, written
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.copy.quarantine import QuarantinedRecord, QuarantineWriter
from watershed.replicator.partition_key import PartitionKey
from watershed.spark.fingerprint import ConsumedRecord, fingerprint_records
from watershed.spark.judging.quarantine_side import build_quarantined_offsets, set_aside_quarantined
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = [ConsumedRecord(b"k%d" % i, b"v%d" % (i % 3), 5 + i // 4, (("h", b"%d" % i),)) for i in range(6)]
RECORDS[4] = RECORDS[3]  # twice the same


def kept(offset: int, record: ConsumedRecord, *, whole: bool = True) -> QuarantinedRecord:
    headers = tuple((str(name), value) for name, value in record.headers)
    content = (record.key, record.value, headers) if whole else (None, None, ())
    return QuarantinedRecord("f", "t", "t", 0, offset, record.timestamp, "too large", 9, whole, *content)


def aside(there: list[ConsumedRecord], *entries: QuarantinedRecord) -> tuple[list[int], int, tuple[int, ...]]:
    """(offsets that are left of the source, records set aside, entries with another content)."""
    told = build_quarantined_offsets(entries, timestamps=True, ids=NO_ID_REWRITE)
    found = set_aside_quarantined(fingerprint_records(RECORDS), fingerprint_records(there), told, 9)
    assert [example.source_offset for example in found.examples] == sorted(
        set(range(len(RECORDS))) - set(found.source.offset.tolist())
    )
    return found.source.offset.tolist(), found.count, found.others


def test_what_is_kept_as_it_was_is_set_aside() -> None:
    assert aside(RECORDS[:2] + RECORDS[3:], kept(2, RECORDS[2])) == ([0, 1, 3, 4, 5], 1, ())
    assert aside(RECORDS[:2] + RECORDS[3:], kept(2, RECORDS[2], whole=False)) == ([0, 1, 3, 4, 5], 1, ())


def test_what_is_kept_otherwise_is_no_copy() -> None:
    assert aside(RECORDS[:2] + RECORDS[3:], kept(2, RECORDS[1])) == ([0, 1, 2, 3, 4, 5], 0, (2,))


def test_what_stands_on_the_target_as_well_stays() -> None:
    assert aside(RECORDS, kept(2, RECORDS[2])) == ([0, 1, 2, 3, 4, 5], 0, ())


def test_of_two_that_are_the_same_one_is_copied_and_one_is_kept() -> None:
    assert aside(RECORDS[:4] + RECORDS[5:], kept(3, RECORDS[3])) == ([0, 1, 2, 4, 5], 1, ())


def test_a_record_without_key_value_or_headers() -> None:
    bare = ConsumedRecord(None, None, -1)
    [told] = build_quarantined_offsets([kept(7, bare)], timestamps=True, ids=NO_ID_REWRITE)
    assert told.prints == (int(fingerprint_records([bare]).fp[0]),)
    assert told.keyless
    nothing = fingerprint_records([])
    assert set_aside_quarantined(nothing, nothing, [told], 9).count == 0


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("cleanup", ["delete", pytest.param("compact", marks=pytest.mark.soak)])
def test_a_flow_that_quarantines_is_incomplete_unless_that_is_allowed(
    kafka_pair, topic_name, tmp_path: Path, spark: SparkSession, cleanup: str
) -> None:
    settings = settings_of(kafka_pair)
    create(settings["onprem"], topic_name, **TAKES_ALL)
    create(settings["cloud"], topic_name, cleanup_policy=cleanup, **TAKES_LITTLE)
    odd = mixed(settings["onprem"], topic_name, b"k" if cleanup == "delete" else None)
    path = tmp_path / "quarantine.yaml"
    plan = applied(settings, written(path, settings, topic_name, [topic_name], "rejected: quarantine"))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        until(lambda: len(read_all(settings["cloud"], topic_name, 1)[0]) >= 30 - len(odd), "the others are copied")
        produce(settings["onprem"], topic_name, 30, 5)
        until(lambda: len(read_all(settings["cloud"], topic_name, 1)[0]) >= 35 - len(odd), "it goes on")
    asked = ProofRequest(wait=5.0)
    found = prove_flows(plan, asked, tmp_path / "one", session=lambda: spark)
    counts = {name: found[name] for name in ("unproven", "pending", "quarantined")}
    assert counts == {"unproven": 0, "pending": 0, "quarantined": len(odd)}, found
    assert (found["verdict"], found["exit_code"]) == ("incomplete", 3)
    assert found["quarantine"] == {"entries": len(odd), "alone": len(odd), "copied_too": 0, "others": []}
    allowed = prove_flows(plan, ProofRequest(wait=5.0, allow_quarantined=True), tmp_path / "two", session=lambda: spark)
    assert allowed["quarantined"] == len(odd)
    if cleanup == "delete":
        assert allowed["verdict"] == "proven"
    else:  # nobody declared that the copy keeps less than its source
        assert allowed["verdict"] == "incomplete"
        assert all("cloud compacts it and onprem does not" in finding for finding in allowed["findings"])


@pytest.mark.kafka
@pytest.mark.spark
def test_the_quarantine_is_not_believed(kafka_pair, topic_name, tmp_path: Path, spark: SparkSession) -> None:
    """One record that was never copied is kept, another is kept with a byte changed, and one stands in both places."""
    settings = settings_of(kafka_pair)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, rejected="quarantine"))
    create(settings["onprem"], topic_name)
    create(settings["cloud"], topic_name)
    into = producer_of(settings["onprem"])
    put(into, topic_name, 12)
    into.flush()
    here = {number: dict(log) for number, log in read_all(settings["onprem"], topic_name, 1).items()}[0]
    copy = producer_of(settings["cloud"])
    for offset, record in sorted(here.items()):
        if offset not in (3, 7):
            copy.produce(topic_name, record[1], record[0], 0, timestamp=record[2], headers=list(record[3]))
    copy.flush()
    flow = plan.flows[0].id
    rejected = {
        offset: RejectedRecord(
            offset,
            here[offset][2],
            here[offset][0],
            here[offset][1] + (b"!" if offset == 7 else b""),
            tuple((str(name).encode(), value) for name, value in here[offset][3]),
            "too large",
        )
        for offset in (3, 5, 7)
    }
    QuarantineWriter(settings["cloud"]).keep(PartitionKey(flow, topic_name, topic_name, 0), list(rejected.values()))
    from watershed.replicator.ledger.offset_map import OffsetMap
    from watershed.spark.judging.flow_observation import PartitionAlignment

    offsets = OffsetMap.of([(0, 0), (3, 4), (6, 8)])
    found = prove_flows(
        plan,
        ProofRequest(wait=0.0, final=True),
        tmp_path / "proof",
        alignment=lambda _settings, _flow: {(topic_name, 0): PartitionAlignment(offsets)},
        session=lambda: spark,
    )
    assert (found["verdict"], found["missing"], found["quarantined"], found["proven"]) == ("different", 1, 1, 10), found
    [other] = found["quarantine"]["others"]
    assert (other["source_offset"], found["quarantine"]["copied_too"]) == (7, 1)
