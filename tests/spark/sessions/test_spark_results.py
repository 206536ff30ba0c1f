"""What a proof on real brokers leaves behind, and what is made of it: levels, groups, --explain and --check."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

from tests.replicator.real import settings_of
from tests.spark.logs import a_log, append, packed
from watershed.cli.verify import verify as command
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.errors import WrongUse
from watershed.spark.evidence.evidence_folder import check_evidence_folder, read_evidence_table
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.judging.flow_observation import PartitionAlignment
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SCHEMA = json.loads(Path("spark/evidence/summary.schema.json").read_text())
TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: results, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    topics: {{include: ["{topic}"]}}
    naming: {{policy: identity}}
    sync: {{groups: {{mode: once, include: [{{glob: "{topic}-*"}}]}}}}
"""


class Scene:
    """A topic whose copy begins three offsets later and lacks record 70, while record 130 has another value there."""

    def __init__(self, lab: Lab, topic: str, directory: Path, spark: SparkSession) -> None:
        self.settings, self.topic, self.directory, self.spark = settings_of(lab), topic, directory, spark
        self.file = directory / "results.yaml"
        bootstraps = {alias: self.settings[alias].bootstrap[0] for alias in ("onprem", "cloud")}
        self.file.write_text(TOPOLOGY.format(topic=topic, **bootstraps))
        self.plan = compile_path(self.file)
        self.log = a_log(1, 150)
        for alias in ("onprem", "cloud"):
            with Admin(self.settings[alias]) as admin:
                admin.create_topic(topic, 1, 1, {"retention.ms": "-1"})
        self.map = OffsetMap.of([(3, 0)])

    def fill(self, copy: list[ConsumedRecord]) -> None:
        append(self.settings["onprem"], self.topic, {0: packed(self.log)})
        append(self.settings["cloud"], self.topic, {0: packed([*a_log(9, 3), *copy])})

    def damaged(self) -> list[ConsumedRecord]:
        copy = list(self.log)
        copy[130] = replace(copy[130], value=b"a card number, say")
        return [*copy[:70], *copy[71:], ConsumedRecord(b"k", b"one more, so that the map ends where it should", 5)]

    def group(self, name: str, source: int, target: int | None) -> None:
        for alias, at in (("onprem", source), ("cloud", target)):
            if at is not None:
                with Admin(self.settings[alias]) as admin:
                    admin.commit_offsets(f"{self.topic}-{name}", {TopicPartition(self.topic, 0): at})

    def verify(self, **request: Any) -> tuple[dict[str, Any], Path]:
        out = self.directory / "proof"
        aligned = {(self.topic, 0): PartitionAlignment(self.map)}
        asked = ProofRequest(**({"wait": 0.0, "chunk": 40} | request))
        document = prove_flows(
            self.plan, asked, out, alignment=lambda _settings, _flow: aligned, session=lambda: self.spark
        )
        assert json.loads((out / "summary.json").read_text()) == document
        jsonschema.validate(document, SCHEMA)
        assert set(document) <= set(SCHEMA["properties"])
        assert check_evidence_folder(out, document["proof_root"]) == []
        return document, out


@pytest.fixture
def scene(kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> Scene:
    return Scene(kafka_pair, topic_name, tmp_path, spark)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(each) for each in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.output


def test_a_damaged_copy_from_proof_to_explanation(scene: Scene) -> None:
    scene.fill(scene.damaged())
    document, out = scene.verify(level="L2")
    assert (document["verdict"], document["missing"], document["altered"]) == ("different", 1, 1)
    found = {row["kind"]: row for row in read_evidence_table(out, "diffs")}
    chunk = f"{scene.topic}-0@120"
    altered = found["altered"]
    assert (altered["source_offset"], altered["target_offset"], altered["chunk"]) == (130, 132, chunk)
    assert found["missing"]["source_offset"] == 70
    assert len(read_evidence_table(out, "diffs")) == document["named"]["differences"] == document["unproven"]

    code, text = run(scene.file, "--explain", chunk, "-o", out)
    assert code == 0
    assert "altered (value)" in text
    assert "source  130  " in text
    assert "target  132  " in text
    assert "card number" not in text
    code, text = run(scene.file, "--explain", f"{scene.topic}-0@135", "-o", out, "--reveal")
    assert '"a card number, say"   ← differs from byte 0 on' in text
    told = json.loads(run(scene.file, "--explain", f"{scene.topic}-0@40", "-o", out, "--format", "json")[1])
    [missing] = told["differences"]
    assert (missing["kind"], missing["source"]["offset"], missing["target"]["offset"]) == ("missing", 70, None)
    assert [near["offset"] for near in missing["target"]["near"]] == [71, 72, 73, 74]
    assert "key" not in missing["source"]["record"]
    with pytest.raises(WrongUse, match=r"has no chunk .*those that differ"):
        run(scene.file, "--explain", f"{scene.topic}-0@9999", "-o", out)

    delete_before(scene, 100)
    code, text = run(scene.file, "--explain", f"{scene.topic}-0@40", "-o", out)
    assert "source offsets 40 to 79 expired since the proof" in text
    assert "source  70  expired since" in text
    code, text = run("--check", out, "--chunk", chunk, "--root", document["proof_root"])
    assert (code, f"gives {document['proof_root']}" in text, "untouched" in text) == (0, True, True)
    (out / "diffs.parquet").write_bytes(b"")
    code, text = run("--check", out)
    assert (code, "diffs.parquet was changed" in text) == (1, True)


def test_groups_land_where_they_should_or_the_proof_says_so(scene: Scene) -> None:
    scene.fill(list(scene.log))
    scene.group("right", 60, 63)
    scene.group("end", 150, 153)
    scene.group("late", 60, 43)
    scene.group("new", 10, None)
    document, out = scene.verify()
    assert (document["level"], document["verdict"], document["exit_code"]) == ("L3", "proven", 0)
    landings = {row["group"].removeprefix(f"{scene.topic}-"): row for row in read_evidence_table(out, "groups")}
    told = {name: (row["translation"], row["landing"], row["landing_records"]) for name, row in landings.items()}
    assert told == {
        "right": ("exact", "exact", None),
        "end": ("exact", "exact", None),
        "late": ("exact", "behind", 20),
        "new": ("exact", "not there", None),
    }
    assert landings["right"]["source_fp"] == landings["right"]["target_fp"] is not None
    assert landings["end"]["source_fp"] is None

    scene.group("too-far", 60, 68)
    document, out = scene.verify(groups=(f"{scene.topic}-too-far",))
    assert (document["verdict"], document["exit_code"], document["unproven"]) == ("different", 1, 0)
    [row] = read_evidence_table(out, "groups")
    assert (row["landing"], row["landing_records"], row["judged"]) == ("ahead", 5, "different")
    with pytest.raises(WrongUse, match="group nobody holds no position"):
        scene.verify(groups=("nobody",))


def test_a_translation_that_skips_is_found_by_the_records(scene: Scene) -> None:
    scene.fill(list(scene.log))
    scene.map = OffsetMap.of([(5, 0)])  # two records too far
    scene.group("some", 60, None)
    document, out = scene.verify()
    [row] = read_evidence_table(out, "groups")
    assert (row["translation"], row["translation_records"], row["judged"]) == ("ahead", 2, "different")
    assert document["exit_code"] == 1


def delete_before(scene: Scene, offset: int) -> None:
    from confluent_kafka import TopicPartition as WirePartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient(scene.settings["onprem"].librdkafka())
    for future in client.delete_records([WirePartition(scene.topic, 0, offset)]).values():
        future.result(60)
