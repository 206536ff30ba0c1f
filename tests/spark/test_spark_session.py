"""What is said when Spark cannot start, and the line between driver and tasks; neither needs Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spark.errors import JavaMissing
from spark.lifeline import Driver, hold
from spark.session import find_java

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
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match="JAVA_HOME=/nowhere"):
        find_java({"JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("line", "major"), [('openjdk version "1.8.0_402"', 8), ('openjdk version "11.0.2" 2019-01-15', 11)]
)
def test_an_old_java_is_refused(tmp_path: Path, line: str, major: int) -> None:
    with pytest.raises(JavaMissing, match=f"is Java {major}"):
        find_java(java_that_says(tmp_path, line))


def test_a_new_java_will_do(tmp_path: Path) -> None:
    assert find_java(java_that_says(tmp_path, 'openjdk version "21.0.1" 2023-10-17')) == 21


def test_verify_without_java_ends_with_2_and_one_message(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY, encoding="utf-8")
    command = [sys.executable, "-m", "cli.main", "verify", str(tmp_path / "t.yaml"), "-o", str(tmp_path / "out")]
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
    command = [sys.executable, "-m", "spark.verify", "--topology", str(tmp_path / "t.yaml"), "--out", str(out)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["verdict"], summary["exit_code"]) == ("error", 2)
    assert message in summary["error"]


def test_a_task_ends_when_the_driver_hangs_up_and_the_driver_sees_tasks_come_and_go() -> None:
    seen: list[list[str]] = []
    driver = Driver("127.0.0.1", lambda present: seen.append(sorted(task["id"] for task in present)))
    stops = [threading.Event(), threading.Event()]
    let_go = [hold(driver.address, {"id": name}, stop) for name, stop in zip("ab", stops, strict=True)]
    _until(lambda: ["a", "b"] in seen)
    let_go[0]()
    _until(lambda: seen[-1] == ["b"])
    assert not stops[1].is_set()
    driver.hang_up()
    assert stops[1].wait(5)


def test_a_task_without_driver_ends_at_once() -> None:
    driver = Driver("127.0.0.1", lambda _present: None)
    address = driver.address
    driver.hang_up()
    stop = threading.Event()
    hold(address, {"id": "a"}, stop)
    assert stop.wait(5)


def _until(condition: object, seconds: float = 5.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
