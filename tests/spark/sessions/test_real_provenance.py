"""The proof of a real copy with `provenance.header`, and what it says where the header is another one; and what becomes
of the header in a backfill, a quarantine, an archive, and behind a restored archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.brokers.test_real_adoption import QUICK as QUICK_TO_ADOPT
from tests.replicator.brokers.test_real_adoption import Scene
from tests.replicator.brokers.test_real_provenance import COUNT, assert_each_tells, write
from tests.replicator.brokers.test_real_quarantine import TAKES_ALL, TAKES_LITTLE, mixed
from tests.replicator.real import applied, plan_for, producer, put, read_all, settings_of, wait_copied, workers
from tests.replicator.states_scene import QUICK, create, until
from tests.spark.brokers.test_archive_restore import log_ranges, run, write_file
from watershed.clusters.admin import Admin
from watershed.clusters.provenance_header import RecordOrigin, decode_record_origin
from watershed.replicator.copy.quarantine import read_quarantine
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path
from watershed.topology.copy_bounds import build_offsets_bound
from watershed.topology.plan import seal_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]


def test_the_proof_knows_the_header(kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> None:
    """It is proven with the header that the flow wrote, and different with any other."""
    settings = settings_of(kafka_pair)
    write(settings, topic_name)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, header="came-from"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_each_tells(settings, plan, topic_name, 2) == COUNT
    verdicts = {}
    for header in ("came-from", "comes-from", None):
        asked = seal_plan(replace(plan, flows=(replace(plan.flows[0], header=header),)))
        found = prove_flows(asked, ProofRequest(wait=30.0), tmp_path / f"{header}", session=lambda: spark)
        verdicts[header] = found["verdict"], found["proven"]
    assert verdicts["came-from"] == ("proven", COUNT)
    assert verdicts["comes-from"][0] == verdicts[None][0] == "different"


def with_header(scene: Scene) -> Scene:
    """The scene's file with the key, and its plan."""
    text = scene.path.read_text()
    scene.path.write_text(text.replace("    workers:", "    provenance: {header: came-from}\n    workers:"))
    scene.plan = compile_path(scene.path)
    assert scene.plan.flows[0].header == "came-from"
    return scene


def list_origins(scene: Scene, topic: str, partitions: int) -> dict[int, list[RecordOrigin | None]]:
    """By partition, what each record of the copy says of its origin; None for one without the header."""
    found: dict[int, list[RecordOrigin | None]] = {}
    for number, rows in read_all(scene.target, scene.there(topic), partitions).items():
        told = [[text for name, text in record[3] if name == "came-from"] for _, record in rows]
        assert all(len(texts) <= 1 for texts in told)
        found[number] = [decode_record_origin(texts[0]) if texts else None for texts in told]
    return found


def expect_origins(scene: Scene, topic: str, partitions: int, since: dict[int, int]) -> dict[int, list[RecordOrigin]]:
    """By partition, the origins of the source's records from these offsets on."""
    with Admin(scene.source) as admin:
        cluster_id = admin.cluster_id()
    return {
        number: [
            RecordOrigin(cluster_id, topic, number, offset, record[2])
            for offset, record in rows
            if offset >= since[number]
        ]
        for number, rows in read_all(scene.source, topic, partitions).items()
    }


def test_a_backfilled_part_and_the_flow_behind_it_have_the_header(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    topic = f"{topic_name}.part"
    scene = with_header(Scene(kafka_pair, f"h{topic_name[-8:]}", tmp_path, topic))
    with Admin(scene.source) as admin:
        admin.create_topic(topic, 1, 1, {"retention.ms": "-1"})
    put(into := producer(scene.source), topic, 2_000)
    assert into.flush(60) == 0
    bounds = ["--from", f"{topic}:0:500", "--to", f"{topic}:0:1500"]
    assert run("backfill", scene.path, "--flow", scene.flow, *bounds, "--yes") == 0
    wanted = expect_origins(scene, topic, 1, {0: 500})
    assert list_origins(scene, topic, 1) == {0: wanted[0][:1_000]}
    applied(scene.settings, scene.plan)
    with workers(scene.plan, "cloud", tmp_path) as start:
        start()
        wait_copied(scene.settings, scene.plan, topic, 1)
    assert list_origins(scene, topic, 1) == wanted
    # The proof goes by the file: without the start, what lies in front of the part is missing.
    start = build_offsets_bound({topic: {0: 500}})
    bounded = seal_plan(replace(scene.plan, flows=(replace(scene.plan.flows[0], start=start),)))
    for plan, verdict in ((bounded, ("proven", 0, 1_500)), (scene.plan, ("different", 500, 1_500))):
        found = prove_flows(plan, ProofRequest(wait=30.0), tmp_path / verdict[0], session=lambda: spark)
        assert (found["verdict"], found["unproven"], found["proven"]) == verdict, found


def test_a_quarantined_record_is_kept_without_the_header_and_the_proof_knows_it(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = settings_of(kafka_pair)
    create(settings["onprem"], topic_name, **TAKES_ALL)
    create(settings["cloud"], topic_name, **TAKES_LITTLE)
    odd = mixed(settings["onprem"], topic_name)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, header="came-from", rejected="quarantine"))
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        until(lambda: len(read_all(settings["cloud"], topic_name, 1)[0]) >= 30 - len(odd), "the others are copied")
    here = dict(read_all(settings["onprem"], topic_name, 1)[0])
    there = [record for _, record in read_all(settings["cloud"], topic_name, 1)[0]]
    origins = [decode_record_origin(record[3][-1][1]).offset for record in there]
    assert origins == [offset for offset in here if offset not in odd]
    kept = read_quarantine(settings["cloud"], plan.flows[0].id)
    assert {each.offset: (each.key, each.value, each.timestamp, each.headers) for each in kept} == {
        offset: here[offset] for offset in odd
    }
    asked = ProofRequest(wait=30.0, allow_quarantined=True)
    found = prove_flows(plan, asked, tmp_path / "proof", session=lambda: spark)
    assert (found["verdict"], found["unproven"], found["quarantined"]) == ("proven", 0, len(odd)), found


def test_an_archive_keeps_the_header_and_gives_it_back(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    settings, folder, back = settings_of(kafka_pair), tmp_path / "archive", f"{topic_name}.back"
    write(settings, topic_name)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, header="came-from"))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 2)
    file = write_file(kafka_pair, tmp_path)
    assert run("archive", file, "--cluster", "cloud", "--topics", topic_name, "--to", folder) == 0
    assert run("restore", file, "--cluster", "onprem", "--from", folder, "--rename", f"{topic_name}={back}") == 0
    assert read_all(settings["onprem"], back, 2) == read_all(settings["cloud"], topic_name, 2)
    assert assert_each_tells(settings, plan, topic_name, 2) == COUNT


def test_behind_a_restored_archive_only_what_the_flow_copies_has_the_header(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The archive was made of the source, whose records have none, and the proof knows where ours begin."""
    topic, folder = f"{topic_name}.carried", tmp_path / "archive"
    scene = with_header(Scene(kafka_pair, f"h{topic_name[-8:]}", tmp_path, topic))
    with Admin(scene.source) as admin:
        admin.create_topic(topic, 2, 1, {"retention.ms": "-1"})
    put(into := producer(scene.source), topic, 900)
    assert into.flush(60) == 0
    assert run("archive", scene.path, "--cluster", scene.alias, "--topics", topic, "--to", folder) == 0
    archived = {number: end for number, (_, end) in enumerate(log_ranges(scene.source, topic, 2))}
    put(into, topic, 400, start=5_000)
    assert into.flush(60) == 0
    renamed = f"{topic}={scene.there(topic)}"
    assert run("restore", scene.path, "--cluster", "cloud", "--from", folder, "--rename", renamed) == 0
    applied(scene.settings, scene.plan)
    with workers(scene.plan, "cloud", tmp_path, QUICK_TO_ADOPT) as start:
        start()
        assert scene.adopt("--from", "archive", "--archive", str(folder), "--yes", "--wait", "180") == 0
        wait_copied(scene.settings, scene.plan, topic, 2)
    wanted = expect_origins(scene, topic, 2, archived)
    assert list_origins(scene, topic, 2) == {n: [None] * archived[n] + wanted[n] for n in wanted}
    request = ProofRequest(flows=(scene.flow,), topics=(topic,), final=True, wait=30.0)
    found = prove_flows(scene.plan, request, tmp_path / "proof", session=lambda: spark)
    assert (found["verdict"], found["unproven"], found["proven"]) == ("proven", 0, 1_300), found
