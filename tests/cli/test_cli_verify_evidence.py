"""`topology verify` about evidence that is there: what a terminal shows, `--check`, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.spark.test_spark_evidence import clean, different, facts, written
from watershed.cli.main import main
from watershed.cli.verdict_text import render_verdict


def test_what_a_terminal_shows_of_a_difference(tmp_path: Path) -> None:
    document = written(tmp_path, different())
    document["groups"]["positions"][0]["group"] = "bill\x1b[31ming"
    text = render_verdict(document, tmp_path, Path("shop.yaml"))
    lines = click.unstyle(text.split("\n", 1)[0]) + "\n" + text.split("\n", 1)[1]
    assert lines.startswith("DIFFERENT   unproven 2   proven 28 of 30   pending 3\nlevel L3, rolling, 3 chunks, 60.0 s")
    assert "orders → b.orders" in lines
    assert "differences: 2, all of them in diffs.parquet" in lines
    assert "  altered (value)           orders-3  source 13, target 12" in lines
    assert f"topology verify shop.yaml --explain orders-3@10 -o {tmp_path}" in lines
    assert "where 15 is committed: ahead by 3" in lines
    assert "not compared: acls" in lines
    assert ("whether the flow goes on: topology status shop.yaml" in lines) == (not document["findings"])
    assert "\x1b[31m" not in text.split("\n", 1)[1]
    assert "\\x1b[31m" in text
    assert max(map(len, lines.replace(str(tmp_path), "evidence").splitlines())) < 140


def test_what_a_terminal_shows_of_a_proof(tmp_path: Path) -> None:
    text = click.unstyle(render_verdict(written(tmp_path, clean()), tmp_path, Path("shop.yaml")))
    assert text.startswith("PROVEN   unproven 0   proven 70 of 70   pending 0")
    assert "differences" not in text
    assert "missing" not in text
    assert facts()["run_id"] not in text


def test_what_a_terminal_advises_about_pending_records(tmp_path: Path) -> None:
    document = written(tmp_path, different())
    document["findings"] = []
    assert "topology status shop.yaml" in render_verdict(document, tmp_path, Path("shop.yaml"))
    for topic in document["topics"]:
        topic["alignment"] = "inferred"
    assert "topology status" not in render_verdict(document, tmp_path, Path("shop.yaml"))


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = written(tmp_path, clean())
    root = document["proof_root"]
    assert main(["verify", "--check", str(tmp_path), "--root", root, "--chunk", "orders-3@20"]) == 0
    said = capsys.readouterr().out
    assert "untouched: 6 files" in said
    assert f"gives {root}" in said
    assert main(["verify", "--check", str(tmp_path), "--format", "json", "--chunk", "orders-3@20"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["untouched"], told["inclusion"]["root"]) == (True, root)
    assert main(["verify", "--check", str(tmp_path), "--root", "sha256:00"]) == 1
    assert "the one that was asked for is sha256:00" in capsys.readouterr().out
    (tmp_path / "report.html").write_text("nicer")
    assert main(["verify", "--check", str(tmp_path)]) == 1
    assert "report.html was changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--check", "{folder}"], "holds no evidence of a proof"),
        ([], "name the topology file"),
        (["shop.yaml", "--reveal"], "--reveal goes with --explain only"),
        (["shop.yaml", "--root", "sha256:00"], "--root goes with --check only"),
        (["shop.yaml", "--explain", "orders-3@0", "-o", "{folder}"], "holds no evidence of a proof"),
    ],
)
def test_wrong_use(arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *(each.format(folder=tmp_path) for each in arguments)]) == 2
    assert says in capsys.readouterr().err
