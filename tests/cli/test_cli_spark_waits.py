"""What a terminal shows of an application that waits for cores: those lines of its log, and no others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from watershed.cli import verify
from watershed.cli.spark_waits import _PREFIXES, SparkWaitReader
from watershed.spark.cluster_cores import BEGUN_PREFIX, WAITING_PREFIX


def test_new_whole_lines_about_waiting_are_read_once(tmp_path: Path) -> None:
    reader = SparkWaitReader(tmp_path / "log")
    assert _PREFIXES == (WAITING_PREFIX, BEGUN_PREFIX)
    assert reader.read_new() == []
    with reader.log.open("w") as log:
        for text, found in [
            ("WARN Utils\nwaiting for Spark: a\nwaiting for", ["waiting for Spark: a"]),
            (" Spark: b\nread 1 of 2 chunks\n", ["waiting for Spark: b"]),
            ("Spark has begun: after 3 s\n", ["Spark has begun: after 3 s"]),
            ("", []),
        ]:
            log.write(text)
            log.flush()
            assert reader.read_new() == found
    reader.log.write_text("waiting for Spark: anew\n")
    assert reader.read_new() == ["waiting for Spark: anew"]


def test_verify_shows_them_while_the_proof_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import pathlib, sys, time; print('waiting for Spark: 0 of 2 cores', file=sys.stderr, flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "sys.exit(3)"
    )
    go = tmp_path / "go"
    shown: list[str] = []

    def show(self: SparkWaitReader) -> None:
        shown.extend(self.read_new())
        if shown:
            go.touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkWaitReader, "show_new", show)
        assert verify._run([sys.executable, "-c", program, str(go)], tmp_path / "out") == 3
    assert shown == ["waiting for Spark: 0 of 2 cores"]
    reader = SparkWaitReader(tmp_path / "out" / "spark.log")
    reader.show_new()
    assert capsys.readouterr().err == "waiting for Spark: 0 of 2 cores\n"
