"""Jars by Maven coordinates, first of all Kafka's: fetched once, kept in the user's cache, shared by all checkouts.

`python -m watershed.lab.jars [RELEASE …]` prints the directories (make uses that); with `--record` it fetches
everything anew and writes down the checksums that later fetches are held to.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from watershed.lab import checksums
from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.releases import (
    DEFAULT_RELEASE,
    RELEASES,
    RELEASES_POM,
    KafkaRelease,
    find_release,
    name_maven_properties,
)

KAFKA_POM = Path(__file__).with_name("pom.xml")
_LEAST_JAVA = 17  # Kafka 4 brokers (KIP-1013)
_HOW_TO_GET = "for example: apt-get install openjdk-17-jre-headless maven"


def fetch_jars(
    pom: Path = KAFKA_POM,
    environ: Mapping[str, str] | None = None,
    name: str = "kafka",
    properties: Mapping[str, str] | None = None,
    sums: Path | None = None,
) -> Path:
    """The directory with the jars that `pom` names; fetched when it is not there yet. name tells the sets apart.
    An archive among them is there unpacked. What was fetched is held to `sums`: else, those beside the POM (`.sha256`).

    properties: what the POM leaves open. Two processes at once fetch once (file lock); an interrupted fetch leaves
    nothing that looks complete. Raises ToolMissing (no java, no mvn), LabError (Maven failed, or gave other files).
    """
    environ = os.environ if environ is None else environ
    given = [f"-D{key}={value}" for key, value in sorted((properties or {}).items())]
    digest = hashlib.sha256(pom.read_bytes() + "".join(given).encode()).hexdigest()[:12]
    home = find_cache_folder(environ) / f"{name}-{digest}"
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.with_name(f"{home.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            _fetch(pom, home, environ, given, sums or name_checksum_file(pom))
    return home


def fetch_release(release: KafkaRelease, environ: Mapping[str, str] | None = None) -> Path:
    """The directory with the jars of one Kafka release, as `fetch_jars`."""
    if release.version == DEFAULT_RELEASE:
        return fetch_jars(environ=environ)
    name, properties = f"kafka-{release.version}", name_maven_properties(release)
    return fetch_jars(RELEASES_POM, environ, name, properties, name_release_checksums(release))


def find_cache_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/watershed`, else `~/.cache/watershed` (XDG base directory specification)."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "watershed"


def find_java(environ: Mapping[str, str] | None = None) -> str:
    """Absolute path of a java of version 17 or newer: `$JAVA_HOME`, else the search path. Raises ToolMissing."""
    environ = os.environ if environ is None else environ
    java_home = environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{java_home}/bin") if java_home else None
    found = found or shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise ToolMissing("java", "no java found", f"Kafka needs Java {_LEAST_JAVA} or newer, {_HOW_TO_GET}")
    version = _version(found)
    if version is None or version < _LEAST_JAVA:
        says = f"Java {version}" if version else "no Java that tells its version"
        raise ToolMissing("java", f"{found} is {says}", f"Kafka needs Java {_LEAST_JAVA} or newer, {_HOW_TO_GET}")
    return os.path.abspath(found)


def list_jvm_options() -> list[str]:
    """Further options, separated by blanks in `$WATERSHED_LAB_JVM`, of the brokers and MirrorMakers that a lab starts.

    -XX:TieredStopAtLevel=1 more than halves the processor time of what lives for a minute (a broker that takes 60,000
    records in transactions: 16 s to 6 s measured); what is measured must go without it.
    """
    return os.environ.get("WATERSHED_LAB_JVM", "").split()


@functools.cache
def read_java_identity(program: str) -> str:
    """What `java -version` says: vendor, version, build."""
    return subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr


def _version(program: str) -> int | None:
    found = re.search(r'version "(?:1\.)?(\d+)', read_java_identity(program))
    return int(found[1]) if found else None


def record_checksums(pom: Path, environ: Mapping[str, str]) -> list[Path]:
    """Write the checksums of what `pom` names, as the repository gives it today; one file a release, if it names
    releases. Returns the files. Raises ToolMissing, LabError.
    """
    if pom.resolve() != RELEASES_POM:
        return [_record(pom, name_checksum_file(pom), environ, [])]
    written = []
    for release in RELEASES.values():
        if release.version != DEFAULT_RELEASE:
            given = [f"-D{key}={value}" for key, value in name_maven_properties(release).items()]
            written.append(_record(pom, name_release_checksums(release), environ, given))
    return written


def name_checksum_file(pom: Path) -> Path:
    """Where the checksums of a POM's files stand."""
    return pom.with_suffix(".sha256")


def name_release_checksums(release: KafkaRelease) -> Path:
    """Where the checksums of a release's files stand."""
    return RELEASES_POM.with_name(f"{release.version}.sha256")


def _record(pom: Path, sums: Path, environ: Mapping[str, str], given: Sequence[str]) -> Path:
    with tempfile.TemporaryDirectory(prefix="watershed-jars-") as scratch:
        checksums.write_checksums(sums, checksums.compute_checksums(_download(pom, Path(scratch), environ, given)))
    return sums


def _fetch(pom: Path, home: Path, environ: Mapping[str, str], given: Sequence[str], sums: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as scratch:
        target = _download(pom, Path(scratch), environ, given)
        checksums.verify_checksums(target, sums)
        for archive in target.glob("*.tar.gz"):  # a whole program instead of jars
            shutil.unpack_archive(archive, target, filter="data")
            archive.unlink()
        if not any(target.glob("*.jar")):
            raise LabError(f"what {pom} names holds no jars")
        target.rename(home)


def _download(pom: Path, scratch: Path, environ: Mapping[str, str], given: Sequence[str]) -> Path:
    find_java(environ)
    maven = shutil.which("mvn", path=environ.get("PATH", ""))
    if maven is None:
        raise ToolMissing("mvn", "no mvn (Maven) found", f"it fetches the Kafka jars once, {_HOW_TO_GET}")
    target = scratch / "jars"
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={target}", "-DincludeScope=runtime", *given]
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=dict(environ), check=False)
    if done.returncode != 0 or not target.is_dir() or not any(target.iterdir()):
        raise LabError(f"Maven could not fetch the jars of {pom}:\n{_complaint(done.stdout + done.stderr)}")
    return target


def _complaint(output: str) -> str:
    lines = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines()
    # An address may carry a password; it is nobody's business here.
    return "\n".join(re.sub(r"//[^/@\s]+@", "//…@", line) for line in lines[:5])


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--record"]:
            for each in map(Path, sys.argv[2:]):
                click.echo("\n".join(map(str, record_checksums(each, os.environ))))
        else:
            for version in sys.argv[1:] or [DEFAULT_RELEASE]:
                click.echo(fetch_release(find_release(version)))
    except LabError as error:
        sys.exit(f"lab: {error}")
