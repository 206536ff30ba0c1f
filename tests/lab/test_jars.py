"""A missing or old Java, a missing Maven: one message that says how to get it."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

import pytest

from lab.errors import LabError, ToolMissing
from lab.jars import jars, java


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
        java(environ)


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_old_java(environ: dict[str, str], tmp_path: Path, version: str) -> None:
    program(tmp_path / "bin", "java", java_of(version))
    with pytest.raises(ToolMissing, match=r"is Java (8|11); Kafka needs Java 17 or newer"):
        java(environ)


def test_no_maven(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "java", java_of("21"))
    with pytest.raises(ToolMissing, match="no mvn"):
        jars(environ=environ)


def test_a_failed_fetch_leaves_nothing_and_tells_no_password(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "java", java_of("17.0.1"))
    program(tmp_path / "bin", "mvn", "echo '[ERROR] cannot reach http://me:secret@127.0.0.1:1/'; exit 1")
    with pytest.raises(LabError, match=r"//…@127") as caught:
        jars(environ=environ)
    assert "secret" not in str(caught.value)
    assert [path.name for path in (tmp_path / "cache" / "watershed").iterdir() if path.is_dir()] == []


def test_fetched_once(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "java", java_of("17.0.1"))
    log = tmp_path / "calls"
    copy = 'for a in "$@"; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done; mkdir -p $d'
    environ["PATH"] += os.pathsep + os.environ["PATH"]
    program(tmp_path / "bin", "mvn", f"echo x >> {log}; {copy}; touch $d/kafka_2.13-4.3.1.jar")
    first, second = jars(environ=environ), jars(environ=environ)
    assert first == second
    assert [path.name for path in first.iterdir()] == ["kafka_2.13-4.3.1.jar"]
    assert log.read_text() == "x\n"


def test_an_archive_is_there_unpacked(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "java", java_of("17.0.1"))
    (tmp_path / "registry-runner.jar").write_bytes(b"jar")
    with tarfile.open(tmp_path / "registry-all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "registry-runner.jar", "registry-runner.jar")
    copy = 'for a in "$@"; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done; mkdir -p $d'
    environ["PATH"] += os.pathsep + os.environ["PATH"]
    program(tmp_path / "bin", "mvn", f"{copy}; cp {tmp_path}/registry-all.tar.gz $d")
    assert [path.name for path in jars(environ=environ, name="registry").iterdir()] == ["registry-runner.jar"]
