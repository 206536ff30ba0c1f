"""Brokers of other Kafka releases: the table, what each is told, what is refused, what the state file keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from watershed.cli.lab import lab as command
from watershed.lab import clusters
from watershed.lab.broker import LabBroker, build_broker_properties
from watershed.lab.errors import LabError
from watershed.lab.jars import KAFKA_POM, name_release_checksums
from watershed.lab.releases import DEFAULT_RELEASE, RELEASES, find_release, name_maven_properties
from watershed.lab.zookeeper import LabZooKeeper

OFFERED = "0.11.0.3, 1.1.1, 2.1.1, 2.4.1, 2.8.2, 3.3.2, 3.6.2, 3.9.1, 4.0.0, 4.3.1"
WITH_ZOOKEEPER = ("0.11.0.3", "1.1.1", "2.1.1", "2.4.1", "2.8.2")
OTHERS = [version for version in RELEASES if version != DEFAULT_RELEASE]


def trio(kafka: str, **more: object) -> tuple[LabBroker, ...]:
    port = 29 if kafka in WITH_ZOOKEEPER else None
    return tuple(
        LabBroker("a", each, each, 10 + each, Path(f"/lab/a/{each}"), kafka=kafka, zookeeper_port=port, **more)  # type: ignore[arg-type]
        for each in (1, 2, 3)
    )


def test_the_table() -> None:
    assert ", ".join(RELEASES) == OFFERED
    assert tuple(each.version for each in RELEASES.values() if each.zookeeper) == WITH_ZOOKEEPER
    assert f"<kafka.version>{DEFAULT_RELEASE}</kafka.version>" in KAFKA_POM.read_text()
    assert all(each.log.configuration.exists() for each in RELEASES.values())


@pytest.mark.parametrize("version", OTHERS)
def test_the_checksums_of_a_release_are_of_what_the_table_names(version: str) -> None:
    release = find_release(version)
    files = name_release_checksums(release).read_text()
    named = [f"kafka_{release.scala}-{version}", f"kafka-clients-{version}", f"{release.log.artifact}-"]
    named += [f"zookeeper-{release.zookeeper}"] if release.zookeeper else []
    assert [each for each in named if f"  {each}" not in files] == []
    assert len(re.findall(r"  (?:slf4j-reload4j|slf4j-log4j12|log4j-slf4j-impl|logback-classic)-", files)) == 1
    pom = KAFKA_POM.with_name("releases").joinpath("pom.xml").read_text()
    assert set(re.findall(r"\$\{(.+?)\}", pom)) == set(name_maven_properties(release))


@pytest.mark.parametrize("version", RELEASES)
def test_a_broker_is_told_what_its_release_knows(version: str) -> None:
    brokers = trio(version)
    told = build_broker_properties(brokers[1], brokers)
    assert not told.keys() & find_release(version).unknown
    assert told["offsets.topic.replication.factor"] == 3
    assert told["auto.create.topics.enable"] == "false"
    assert ("share.coordinator.state.topic.min.isr" in told) == version.startswith("4")
    assert ("log.initial.task.delay.ms" in told) == (version in ("3.9.1", "4.0.0", "4.3.1"))
    if version in WITH_ZOOKEEPER:
        assert (told["broker.id"], told["zookeeper.connect"]) == (2, "127.0.0.1:29")
        assert told["listeners"] == "PLAINTEXT://127.0.0.1:2"
        assert [key for key in told if re.match(r"process\.|node\.|controller\.|broker\.session", key)] == []
    else:
        assert told["controller.quorum.voters"] == "1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13"
        assert [key for key in told if "zookeeper" in key or key == "broker.id"] == []


def test_settings_of_its_own_are_told_whatever_the_release() -> None:
    brokers = trio("1.1.1", settings=(("share.coordinator.state.topic.min.isr", "{id}"), ("broker.rack", "r")))
    told = build_broker_properties(brokers[2], brokers)
    assert (told["share.coordinator.state.topic.min.isr"], told["broker.rack"]) == ("3", "r")


def up(home: Path, kafka: str) -> str:
    done = CliRunner().invoke(command, ["up", "--kafka", kafka, "--dir", str(home)])
    assert done.exit_code == 2
    return done.output


@pytest.mark.parametrize("kafka", ["2.4", "onprem=2.4", "cloud=9.9.9,onprem=2.4.1"])
def test_an_unknown_release_is_refused_with_those_that_there_are(tmp_path: Path, kafka: str) -> None:
    wrong = re.findall(r"2\.4$|9\.9\.9", kafka)[0]
    assert f"the lab has no Kafka {wrong!r}; it has {OFFERED}" in up(tmp_path / "lab", kafka)
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("kafka", ["onprem=2.4.1,cloud", "onprem=", "onprem=2.4.1,onprem=3.9.1", "=2.4.1"])
def test_releases_by_cluster_are_written_in_one_way(tmp_path: Path, kafka: str) -> None:
    assert "--kafka: one release, or CLUSTER=RELEASE,… with each cluster once" in up(tmp_path, kafka)


def test_a_release_for_a_cluster_that_is_not_started_is_refused(tmp_path: Path) -> None:
    says = up(tmp_path / "lab", "dr=2.4.1")
    assert "Kafka 2.4.1 is asked for cluster dr, but these are started: onprem, cloud" in says


def write_state(home: Path, broker: dict[str, object], **more: object) -> None:
    kept = {"id": 1, "pid": None, "started": None, "port": 1, "controller_port": 2, "home": str(home / "a" / "1")}
    cluster = {"alias": "a", "cluster_id": "x", "brokers": [kept | broker], **more}
    (home / "lab.json").write_text(json.dumps({"schema": 1, "clusters": [cluster]}))


def test_a_state_file_of_before_there_were_releases(tmp_path: Path) -> None:
    write_state(tmp_path, {})
    cluster = clusters.read_lab(tmp_path).cluster("a")
    assert (cluster.brokers[0].kafka, cluster.brokers[0].zookeeper_port, cluster.zookeeper) == ("4.3.1", None, None)


def test_the_state_file_keeps_release_and_zookeeper(tmp_path: Path) -> None:
    zookeeper = LabZooKeeper("2.4.1", 29, tmp_path / "a" / "zookeeper")
    write_state(tmp_path, {"kafka": "2.4.1", "zookeeper_port": 29}, zookeeper=zookeeper.to_json())
    cluster = clusters.read_lab(tmp_path).cluster("a")
    assert cluster.zookeeper == zookeeper
    assert LabBroker.from_json("a", cluster.brokers[0].to_json()) == cluster.brokers[0]
    shown = CliRunner().invoke(command, ["status", "--dir", str(tmp_path)])
    assert shown.exit_code == 1
    assert re.search(r"broker 1 +port 1 +not running +Kafka 2\.4\.1 ", shown.output)
    assert re.search(r"ZooKeeper +port 29 +not running ", shown.output)


def test_a_cluster_keeps_its_release(tmp_path: Path) -> None:
    write_state(tmp_path, {"kafka": "2.4.1", "zookeeper_port": 29})
    with pytest.raises(LabError, match=r"cluster a in .* is Kafka 2\.4\.1, not 3\.9\.1; take it down first"):
        clusters.start_clusters(tmp_path, ["a"], kafka="3.9.1")
