"""Two-way copy under unchanged names: ours there, a real MirrorMaker 2 back, as docs/external-flows.md tells people."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.replicator.external import (
    MARKS,
    PARTITIONS,
    assert_quiet,
    copying_back,
    leave_out,
    name_all,
    wait_everywhere,
    writing_everywhere,
)
from tests.replicator.real import settings_of
from tests.spark.sessions.test_real_transform import is_caught_up, read_partitions, transform_worker
from tests.spark.sessions.test_spark_replicate import run, until
from watershed.clusters.admin import Admin
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1200)]

SECONDS = float(os.environ.get("SOAK_EXTERNAL_S", "120"))
PAGE = Path(__file__).parents[3] / "docs" / "external-flows.md"
HEADER = "copied-by-watershed"


def read_page(language: str, about: str) -> str:
    """The block of the page in this language that has this text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    [found] = [block for block in blocks if about in block]
    return str(found)


def write_topology(lab: Lab, name: str, folder: Path) -> Path:
    """The page's topology, for one topic of these clusters."""
    said = yaml.safe_load(read_page("yaml", "leaves_out"))
    for flow in (*said["flows"], *said["external_flows"]):
        flow["topics"] = {"include": [name]}
    said["flows"][0]["suffix"] = name
    clusters = {
        alias: {"bootstrap": [lab.clusters[alias].bootstrap], "security": {"protocol": "PLAINTEXT"}}
        for alias in ("onprem", "cloud")
    }
    whole = {"apiVersion": "topology/v1alpha1", "kind": "Topology", "metadata": {"name": name, "owner": "tests"}}
    path = folder / "t.yaml"
    path.write_text(yaml.safe_dump(whole | {"clusters": clusters} | said), encoding="utf-8")
    return path


def test_each_record_stands_on_both_clusters_once(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Our worker is killed with -9 while applications write at both ends. Then the proof of our flow, which leaves out
    what MirrorMaker brought."""
    lines = [line.partition(" = ") for line in read_page("properties", "InsertHeader").splitlines()]
    mirrormaker = {name: value for name, _, value in lines}
    assert mirrormaker == MARKS | leave_out(HEADER)
    path, settings = write_topology(kafka_pair, topic_name, tmp_path), settings_of(kafka_pair)
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, PARTITIONS, 1, {})
    with ExitStack() as stack:
        stack.enter_context(copying_back(settings, topic_name, tmp_path / "mirrormaker", mirrormaker))
        run("-m", "watershed.cli.main", "apply", str(path), "--yes")
        log = tmp_path / "log"
        wrote = stack.enter_context(writing := ExitStack()).enter_context(writing_everywhere(settings, topic_name))
        with transform_worker(path, log) as worker:
            until(lambda: worker.poll() is None and any(each["target_end"] > 0 for each in read_partitions(path)), 180)
            time.sleep(SECONDS / 2)
            os.kill(worker.pid, signal.SIGKILL)
        with transform_worker(path, log) as worker:
            time.sleep(SECONDS / 2)
            writing.close()
            names = name_all(wrote)
            wait_everywhere(settings, topic_name, names)
            found = assert_quiet(settings, topic_name, 20)
            until(lambda: is_caught_up(path, kafka_pair, topic_name), 60)
            assert worker.poll() is None
        assert found == {alias: Counter(names) for alias in ("onprem", "cloud")}
        assert min(wrote.values()) > 1_000
    summary = prove_flows(compile_path(path), ProofRequest(wait=30.0), tmp_path / "out", session=lambda: spark)
    assert (summary["verdict"], summary["unproven"]) == ("proven", 0), summary
    assert summary["proven"] == wrote["onprem"]
    print(f"written {dict(wrote)}, each on both clusters once; proven {summary['proven']}")
