"""A missing or old Java, a missing Maven: one message that says how to get it."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from pathlib import Path

import pytest

from watershed.lab import checksums
from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.jars import (
    KAFKA_POM,
    fetch_jars,
    fetch_release,
    find_java,
    name_checksum_file,
    name_release_checksums,
    record_checksums,
)
from watershed.lab.releases import DEFAULT_RELEASE, RELEASES, RELEASES_POM, find_release


def program(directory: Path, name: str, script: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def java_of(version: str) -> str:
    return f"echo 'openjdk version \"{version}\"' >&2"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_no_java(environ: dict[str, str]) -> None:
    with pytest.raises(ToolMissing, match=r"no java found; .*apt-get install openjdk-17-jre-headless maven"):
        find_java(environ)


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_old_java(environ: dict[str, str], tmp_path: Path, version: str) -> None:
    program(tmp_path / "bin", "java", java_of(version))
    with pytest.raises(ToolMissing, match=r"is Java (8|11); Kafka needs Java 17 or newer"):
        find_java(environ)


def test_no_maven(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "java", java_of("21"))
    with pytest.raises(ToolMissing, match="no mvn"):
        fetch_jars(environ=environ)


def test_a_failed_fetch_leaves_nothing_and_tells_no_password(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "java", java_of("17.0.1"))
    program(tmp_path / "bin", "mvn", "echo '[ERROR] cannot reach http://me:secret@127.0.0.1:1/'; exit 1")
    with pytest.raises(LabError, match=r"//…@127") as caught:
        fetch_jars(environ=environ)
    assert "secret" not in str(caught.value)
    assert [path.name for path in (tmp_path / "cache" / "watershed").iterdir() if path.is_dir()] == []


COPY = 'for a in "$@"; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done; mkdir -p $d'


@pytest.fixture
def pom(environ: dict[str, str], tmp_path: Path) -> Path:
    """One that names the file `one.jar`, which holds "one"; Java is there, and the programs of the shell."""
    program(tmp_path / "bin", "java", java_of("17.0.1"))
    environ["PATH"] += os.pathsep + os.environ["PATH"]
    (tmp_path / "pom.xml").write_text("<project/>")
    checksums.write_checksums(tmp_path / "pom.sha256", {"one.jar": hashlib.sha256(b"one").hexdigest()})
    return tmp_path / "pom.xml"


def test_fetched_once(environ: dict[str, str], tmp_path: Path, pom: Path) -> None:
    log = tmp_path / "calls"
    program(tmp_path / "bin", "mvn", f"echo x >> {log}; {COPY}; printf one > $d/one.jar")
    first, second = fetch_jars(pom, environ), fetch_jars(pom, environ)
    assert first == second
    assert [path.name for path in first.iterdir()] == ["one.jar"]
    assert log.read_text() == "x\n"


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ("printf two > $d/one.jar", r"one\.jar has 3fc4ccfe\w+, not 7692c3ad"),
        ("printf one > $d/one.jar; touch $d/more.jar", r"more\.jar is not among them"),
        ("printf one > $d/more.jar", r"one\.jar is missing; more\.jar is not among them"),
    ],
)
def test_other_files_than_those_of_the_checkout(
    environ: dict[str, str], tmp_path: Path, pom: Path, gives: str, says: str
) -> None:
    program(tmp_path / "bin", "mvn", f"{COPY}; {gives}")
    with pytest.raises(LabError, match=says):
        fetch_jars(pom, environ)
    assert [path.name for path in (tmp_path / "cache" / "watershed").iterdir() if path.is_dir()] == []


def test_no_checksums(environ: dict[str, str], tmp_path: Path, pom: Path) -> None:
    program(tmp_path / "bin", "mvn", f"{COPY}; printf one > $d/one.jar")
    (tmp_path / "pom.sha256").unlink()
    with pytest.raises(LabError, match=r"pom\.sha256 cannot be read .*make checksums"):
        fetch_jars(pom, environ)
    record_checksums(pom, environ)
    assert [path.name for path in fetch_jars(pom, environ).iterdir()] == ["one.jar"]


def test_an_archive_is_there_unpacked(environ: dict[str, str], tmp_path: Path, pom: Path) -> None:
    (tmp_path / "registry-runner.jar").write_bytes(b"jar")
    with tarfile.open(tmp_path / "registry-all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "registry-runner.jar", "registry-runner.jar")
    program(tmp_path / "bin", "mvn", f"{COPY}; cp {tmp_path}/registry-all.tar.gz $d")
    record_checksums(pom, environ)
    assert [path.name for path in fetch_jars(pom, environ, name="registry").iterdir()] == ["registry-runner.jar"]


def test_each_release_is_fetched_once_and_held_to_its_own_checksums(
    environ: dict[str, str], tmp_path: Path, pom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls"
    given = 'for a in "$@"; do case $a in -Dkafka.version=*) v=${a#*=};; esac; done'
    program(tmp_path / "bin", "mvn", f"{COPY}; {given}; echo $v >> {log}; printf $v > $d/kafka.jar")
    monkeypatch.setattr(
        "watershed.lab.jars.name_release_checksums", lambda release: tmp_path / f"{release.version}.sha256"
    )
    for version in ("2.4.1", "2.8.2"):
        sums = {"kafka.jar": hashlib.sha256(version.encode()).hexdigest()}
        checksums.write_checksums(tmp_path / f"{version}.sha256", sums)
    homes = [fetch_release(find_release(version), environ) for version in ("2.4.1", "2.8.2", "2.4.1")]
    assert [(home / "kafka.jar").read_text() for home in homes] == ["2.4.1", "2.8.2", "2.4.1"]
    assert log.read_text().split() == ["2.4.1", "2.8.2"]
    (tmp_path / "2.1.1.sha256").write_text((tmp_path / "2.4.1.sha256").read_text())
    with pytest.raises(LabError, match=r"not what .*2\.1\.1\.sha256 names.*kafka\.jar has"):
        fetch_release(find_release("2.1.1"), environ)


RECORDED = [
    "lab/pom.xml",
    "lab/registry.pom.xml",
    "lab/releases/pom.xml",
    "lab/streams.pom.xml",
    "tests/clusters/usage/exporter.pom.xml",
    "tests/schemas/pom.xml",
    "tests/schemas/strimzi.pom.xml",
]


def test_what_is_cached_is_what_the_checkout_names() -> None:
    assert checksums.compute_checksums(fetch_jars()) == checksums.read_checksums(name_checksum_file(KAFKA_POM))


def test_every_pom_that_tests_fetch_has_checksums() -> None:
    """A cache that is warm hides it: where nothing was fetched before, `jars` refuses."""
    root = KAFKA_POM.resolve().parent.parent
    poms = sorted(path for room in ("lab", "tests") for path in (root / room).rglob("*pom.xml"))
    assert [path.relative_to(root).as_posix() for path in poms] == RECORDED
    sums = [name_checksum_file(path) for path in poms if path != RELEASES_POM.resolve()]
    sums += [name_release_checksums(each) for each in RELEASES.values() if each.version != DEFAULT_RELEASE]
    assert [path for path in sums if not checksums.read_checksums(path)] == []
    assert {each.name for each in RELEASES_POM.parent.glob("*.sha256")} <= {each.name for each in sums}
    told = (root / "Makefile").read_text()
    assert f"--record {' '.join(RECORDED)}" in told
