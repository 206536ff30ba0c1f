"""What is said when Spark cannot start, and what a session is told; nothing here starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from watershed.spark.cluster_cores import list_master_addresses
from watershed.spark.errors import JavaMissing, WrongUse
from watershed.spark.replicate import REQUIRED_SETTINGS, build_fleet_settings
from watershed.spark.session import _further, _seen_by, is_local_master, merge_spark_settings, require_java
from watershed.spark.shipping import SHIPPED_ROOMS, write_package_archive

TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: nowhere, owner: tests}
clusters:
  onprem: {bootstrap: ["127.0.0.1:9"], security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:10"], security: {protocol: PLAINTEXT}}
pattern:
  active_standby: {active: onprem, standby: cloud, topics: {include: [{glob: "orders.*"}]}, naming: {policy: identity}}
"""


def java_that_says(directory: Path, line: str) -> dict[str, str]:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{line}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return {"JAVA_HOME": str(directory)}


def test_no_java_is_named_with_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"there is none .*apt-get install openjdk-17"):
        require_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match="JAVA_HOME=/nowhere"):
        require_java({"JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("line", "major"), [('openjdk version "1.8.0_402"', 8), ('openjdk version "11.0.2" 2019-01-15', 11)]
)
def test_an_old_java_is_refused(tmp_path: Path, line: str, major: int) -> None:
    with pytest.raises(JavaMissing, match=f"is Java {major}"):
        require_java(java_that_says(tmp_path, line))


def test_a_new_java_will_do(tmp_path: Path) -> None:
    assert require_java(java_that_says(tmp_path, 'openjdk version "21.0.1" 2023-10-17')) == 21


def test_verify_without_java_ends_with_2_and_one_message(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "watershed.cli.main",
        "verify",
        str(tmp_path / "t.yaml"),
        "-o",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("topology: Spark needs Java 17 or newer, and there is none")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--level", "L0"), "does not answer at 127.0.0.1:9"),
        (("--level", "L0", "--flow", "a-to-b"), "has no flow a-to-b; it has onprem-to-cloud"),
        (("--level", "L0", "--since", "nowhere.json"), "cannot read the earlier summary nowhere.json"),
    ],
)
def test_wrong_use_and_silence_are_errors_never_differences(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY, encoding="utf-8")
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "watershed.spark.verify",
        "--topology",
        str(tmp_path / "t.yaml"),
        "--out",
        str(out),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["verdict"], summary["exit_code"]) == ("error", 2)
    assert message in summary["error"]


def test_further_settings_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "spark.conf"
    path.write_text("# ours\n\nspark.executor.memory 2g\nspark.a=b c\nspark.d: e\nspark.empty \n", encoding="utf-8")
    told = _further({"WATERSHED_SPARK_CONF": str(path)})
    assert told == {"spark.executor.memory": "2g", "spark.a": "b c", "spark.d": "e", "spark.empty": ""}
    assert _further({}) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spark.a b\npassword=hunter2\n", r"spark.conf, line 2: expected `spark.KEY VALUE`$"),
        ("spark.master yarn", "set WATERSHED_SPARK_MASTER=yarn"),
        ("spark.submit.deployMode cluster", "must be client"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spark.conf"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongUse, match=message):
        _further({"WATERSHED_SPARK_CONF": str(path)})


def test_a_file_of_settings_that_is_not_there_is_named() -> None:
    with pytest.raises(WrongUse, match=r"cannot read WATERSHED_SPARK_CONF=/nowhere/spark\.conf"):
        _further({"WATERSHED_SPARK_CONF": "/nowhere/spark.conf"})


def test_a_file_wins_over_what_an_application_wants_but_not_over_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "spark.conf"
    lines = "spark.driver.memory 3g", "spark.executor.cores 4", "spark.dynamicAllocation.enabled true", "spark.x y"
    path.write_text("\n".join(lines), encoding="utf-8")
    told = merge_spark_settings(build_fleet_settings(3), REQUIRED_SETTINGS, {"WATERSHED_SPARK_CONF": str(path)})
    assert (told["spark.driver.memory"], told["spark.executor.cores"], told["spark.x"]) == ("3g", "4", "y")
    assert told["spark.dynamicAllocation.enabled"] == "false"
    assert (told["spark.cores.max"], told["spark.speculation"], told["spark.ui.enabled"]) == (
        "3",
        "false",
        "false",
    )


def test_masters_are_told_apart() -> None:
    assert [
        is_local_master(each) for each in ("local", "local[*]", "local[2,64]", "local-cluster[2,1,512]", "yarn")
    ] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert list_master_addresses("spark://a:7077,b:7078") == [("a", 7077), ("b", 7078)]
    assert list_master_addresses("k8s://https://kube:6443") == [("kube", 6443)]
    assert list_master_addresses("k8s://kube") == [("kube", 443)]
    assert list_master_addresses("yarn") == []
    with pytest.raises(WrongUse, match=r"expected spark://HOST:PORT\[,HOST:PORT\]"):
        list_master_addresses("spark://a")


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with pytest.raises(WrongUse, match=r"no Spark master answers at 127\.0\.0\.1:1 .* Is it running\?"):
        _seen_by("spark://127.0.0.1:1")


def test_executors_get_our_packages_and_need_nothing_else_of_ours(tmp_path: Path) -> None:
    archive = write_package_archive(tmp_path)
    names = ", ".join(
        (
            "watershed.spark.spark_range_readers",
            "watershed.spark.replicate",
            "watershed.replicator.worker.worker",
            "watershed.topology.plan",
            *(f"watershed.{room}" for room in SHIPPED_ROOMS),
        )
    )
    where = "watershed.spark.spark_range_readers.__file__"
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import {names}; print({where})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": ""}
    )
    assert done.stdout.strip() == f"{archive}/watershed/spark/spark_range_readers.py", done.stderr
