"""Two fleets and a proof on a standalone cluster of two cores: nobody starves, and who waits says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.replicator.real import assert_exact_copy, wait_copied
from tests.spark.standalone import PARTITIONS, Application, Scene, Supervised, build_cluster, runs, until
from watershed.cli.spark_waits import SparkWaitReader
from watershed.lab.spark_standalone import SparkStandalone
from watershed.spark.cluster_cores import ClusterCores, read_cluster_cores
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    with build_cluster(tmp_path_factory.mktemp("standalone"), workers=1) as cluster:
        yield cluster


class Verify(Application):
    """`topology verify`, as a person starts it."""

    def __init__(self, scene: Scene, cluster: SparkStandalone, directory: Path) -> None:
        self.began = time.monotonic()
        words = ["-m", "watershed.cli.main", "verify", str(scene.path), "--out", str(directory.with_suffix(".proof"))]
        super().__init__(directory, cluster, words, {})

    def proves(self) -> bool:
        assert self.process.wait(300) == 0, self.said()[-3000:]
        print(f"proven after {time.monotonic() - self.began:.1f} s")
        return "proven" in self.said()

    def wait_said(self, text: str) -> None:
        self.until(lambda: text in self.said(), 300)
        print(f"{text!r} after {time.monotonic() - self.began:.1f} s")

    def end(self) -> None:
        """Also the application that it started."""
        family = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        super().end()
        for each in family:
            if runs(each.pid):
                each.kill()


def held(cluster: SparkStandalone) -> dict[str, int]:
    """Cores by the application's name, as the master's page says."""
    found = read_cluster_cores(cluster.url, {"WATERSHED_SPARK_PAGE": cluster.page})
    assert isinstance(found, ClusterCores)
    return {each.name: each.cores for each in found.applications}


def test_two_fleets_and_a_proof_share_two_cores(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, cluster: SparkStandalone
) -> None:
    scenes = []
    for each in ("a", "b"):
        (tmp_path / each).mkdir()
        scenes.append(Scene(kafka_pair, f"{topic_name}-{each}", tmp_path / each))
        scenes[-1].fill(2_000)
        scenes[-1].apply()
    first, second = scenes
    fleets = [Supervised(first, cluster, tmp_path / "first")]
    proofs: list[Verify] = []
    try:
        fleets[0].wait_size(1)
        assert list(held(cluster).values()) == [1]

        # By default the second fleet leaves the last core to proofs, and copies beside its driver.
        fleets.append(Supervised(second, cluster, tmp_path / "second"))
        row = fleets[1].wait_size(1)
        row = fleets[1].until(lambda: (now := fleets[1].row()).note and now, 60)
        assert row.note.startswith("1 worker runs beside the Spark driver: fleets hold 1 of 2 cores, and leave 1")
        for scene in scenes:
            wait_copied(scene.settings, compile_path(scene.path), scene.name, PARTITIONS)
        assert sum(held(cluster).values()) == 1
        proofs.append(Verify(second, cluster, tmp_path / "proof"))
        assert proofs[0].proves()
        assert "waiting for Spark" not in proofs[0].said()

        # A fleet that may take all: the proof says at once who holds the cores, and begins when one is given back.
        fleets[1].order(second, "stop")
        fleets[1].wait_size(0)
        fleets.pop().end()
        until(lambda: len(held(cluster)) == 1)
        fleets.append(Supervised(second, cluster, tmp_path / "greedy", {"spark.watershed.cores.left": "0"}))
        fleets[1].order(second, "start")
        fleets[1].wait_size(1)
        until(lambda: list(held(cluster).values()) == [1, 1])
        proofs.append(proof := Verify(first, cluster, tmp_path / "starving"))
        proof.wait_said("waiting for Spark: 0 of 2 cores free")
        for scene in scenes:
            assert f"watershed-replicate-{scene.name}-cloud holds 1" in proof.said()
        assert "give the cluster 3 cores" in proof.said()
        assert SparkWaitReader(tmp_path / "starving.proof" / "spark.log").read_new()
        # It says so before its session, and again when its first job waits; only the latter says that Spark has begun.
        proof.until(lambda: proof.said().count("waiting for Spark: 0 of 2 cores free") == 2, 120)
        fleets[1].order(second, "stop")
        proof.wait_said("Spark has begun: after")
        assert proof.proves()
        for scene in scenes:
            copied = assert_exact_copy(scene.settings, compile_path(scene.path), scene.name, PARTITIONS)
            assert copied == scene.written
    finally:
        for each in (*proofs, *fleets):
            each.end()


def test_the_fleet_of_a_full_cluster_that_is_started_by_hand_is_refused(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, cluster: SparkStandalone
) -> None:
    scene = Scene(kafka_pair, topic_name, tmp_path)
    hand = Application(
        tmp_path / "hand",
        cluster,
        ["-m", "watershed.spark.replicate", "--topology", str(scene.path), "--target", "cloud", "--workers", "1"],
        {"spark.watershed.cores.left": "2"},
    )
    try:
        assert hand.process.wait(300) == 2
        assert "error: 0 of 1 workers can begin: fleets hold 0 of 2 cores, and leave 2 to proofs" in hand.said()
    finally:
        hand.end()
