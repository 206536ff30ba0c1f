"""A target without idempotent producers: workers are killed in mid-copy, and batches land late.

The proof names exactly the repeats that plain consumers count on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.faults import progress, times
from tests.replicator.real import applied, plan_for, producer, put, read_all, settings_of, wait_copied, workers
from tests.replicator.states_scene import until
from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import read_flows
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.free_ports import LOOPBACK_HOST, reserve_port_decade
from watershed.lab.proxied_clusters import build_proxied_listeners
from watershed.lab.request_proxy import RequestProxy
from watershed.replicator.apply_refusals import CannotApply
from watershed.replicator.ledger.explicit_runs import RepeatedRunMap
from watershed.replicator.ledger.ledger import read_ledger
from watershed.spark.evidence.evidence_folder import check_evidence_folder, read_evidence_table
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]
PARTITIONS, KILLS = 2, 4


@dataclass(frozen=True)
class Plain:
    """Both clusters as a worker meets them (`through`) and as they are; the target's proxy."""

    settings: dict[str, ConnectionSettings]
    through: dict[str, ConnectionSettings]
    proxy: RequestProxy


@pytest.fixture
def plain(kafka_pair: Any, tmp_path: Path) -> Iterator[Plain]:
    """The source of the shared pair, and a target whose brokers take no idempotent producers."""
    behind, before = reserve_port_decade(), reserve_port_decade()
    lab = clusters.start_clusters(tmp_path / "lab", ["cloud"], 1, build_proxied_listeners(behind, before))
    proxy = RequestProxy((LOOPBACK_HOST, behind + 1), before + 1)
    try:
        settings = {"onprem": settings_of(kafka_pair)["onprem"], "cloud": settings_of(lab)["cloud"]}
        through = settings | {"cloud": ConnectionSettings(alias="cloud", bootstrap=(proxy.address,))}
        yield Plain(settings, through, proxy)
    finally:
        proxy.close()
        clusters.end_clusters(tmp_path / "lab")


def find_repeats(settings: dict[str, ConnectionSettings], topic: str) -> Counter[tuple[int, int, int]]:
    """(partition, source offset, target offset) of every record that stands at the target once more, as two plain
    consumers see both logs. Fails where a record is missing, or is there before its turn."""
    here, there = (read_all(settings[alias], topic, PARTITIONS) for alias in ("onprem", "cloud"))
    found: Counter[tuple[int, int, int]] = Counter()
    for partition in range(PARTITIONS):
        source, at, seen = here[partition], 0, {}
        for target_offset, record in there[partition]:
            if at < len(source) and source[at][1] == record:
                seen[record] = source[at][0]
                at += 1
            else:
                found[partition, seen[record], target_offset] += 1
        assert at == len(source), f"partition {partition}: {len(source) - at} records are missing"
    return found


def prove(plan: Plan, out: Path, spark: SparkSession) -> tuple[dict[str, Any], Counter[tuple[int, int, int]]]:
    """The summary, and the repeats that it names."""
    document = prove_flows(plan, ProofRequest(wait=5.0), out, session=lambda: spark)
    rows = read_evidence_table(out, "diffs")
    assert {row["kind"] for row in rows} <= {"repeated"}
    assert check_evidence_folder(out) == []
    return document, Counter((row["partition"], row["source_offset"], row["target_offset"]) for row in rows)


def test_every_repeat_is_counted_and_named(plain: Plain, topic_name: str, tmp_path: Path, spark: SparkSession) -> None:
    with Admin(plain.settings["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1)
    with pytest.raises(CannotApply, match=r"`delivery\.semantics: at_least_once` allows it"):
        applied(plain.through, plan_for(plain.through, topic_name, topic_name))
    plan = applied(plain.through, plan_for(plain.through, topic_name, topic_name, allows_repeats=True))
    [record] = read_flows(plain.settings["cloud"]).values()
    assert (record.guarantee, record.producer_id) == ("at_least_once, proven", None)
    with Admin(plain.settings["cloud"]) as admin:
        topic_id = admin.topics()[topic_name].topic_id
    sending, sent = producer(plain.settings["onprem"], **{"batch.size": 16_000}), 0
    with workers(plan, "cloud", tmp_path, times(settle=3)) as start:
        for kill in range(KILLS):
            worker = start()
            put(sending, topic_name, 3_000, start=sent)
            sent += 3_000
            progress(plain.settings["cloud"], topic_name, range(PARTITIONS), 500)
            if kill % 2:  # its batch is on its way for longer than the takeover waits
                plain.proxy.hold_produce(topic_id)
                put(sending, topic_name, 500, start=sent)
                sent += 500
                plain.proxy.wait_held()
            worker.kill()
            start_next = start()
            put(sending, topic_name, 200, start=sent)
            sent += 200
            progress(plain.settings["cloud"], topic_name, range(PARTITIONS), 100)
            plain.proxy.release()
            put(sending, topic_name, 200, start=sent)
            sent += 200
            wait_copied(plain.settings, plan, topic_name, PARTITIONS)
            start_next.kill()
        start()
        put(sending, topic_name, 100, start=sent)
        wait_copied(plain.settings, plan, topic_name, PARTITIONS)

        repeats = find_repeats(plain.settings, topic_name)
        assert repeats
        until(lambda: read_known(plain, plan) == repeats, "the ledger names each")
        document, named = prove(plan, tmp_path / "proof", spark)
        assert named == repeats
        assert (document["verdict"], document["exit_code"]) == ("repeated", 0)
        assert (document["repeated"], document["unproven"], document["pending"]) == (len(repeats), 0, 0)

        # A batch that lands while nothing is copied: no worker knows it, and the proof finds it.
        plain.proxy.hold_produce(topic_id)
        put(sending, topic_name, 50, start=sent + 100)
        plain.proxy.wait_held()
        wait_copied(plain.settings, plan, topic_name, PARTITIONS)
        plain.proxy.release()
        late = find_repeats(plain.settings, topic_name)
        assert len(late) > len(repeats)
        document, named = prove(plan, tmp_path / "again", spark)
        assert named == late
        assert (document["verdict"], document["repeated"]) == ("repeated", len(late))
    assert plain.proxy.refused == 0, "nothing is asked that the target does not list"


def read_known(plain: Plain, plan: Plan) -> Counter[tuple[int, int, int]]:
    """What the ledger says is repeated."""
    found: Counter[tuple[int, int, int]] = Counter()
    for key, (offsets, _) in read_ledger(plain.settings["cloud"], flow=plan.flows[0].id).copies().items():
        assert isinstance(offsets, RepeatedRunMap)
        for run in offsets.repeated:
            found.update((key.partition, run.source + at, run.target + at) for at in range(run.records))
    return found
