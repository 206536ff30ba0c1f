"""`topology migrate --drill` on the command line, without clusters."""

from __future__ import annotations

import json

import pytest

from watershed.cli.drill_text import render_drill_report
from watershed.cli.main import main

EXAMPLE = "topology/examples/migration.yaml"


def test_a_dry_run_shows_both_ways_and_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", EXAMPLE, "--drill", "--wave", "orders", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "rehearsal of orders, onprem → cloud" in text
    assert "rehearsal of orders, cloud → onprem" in text
    assert text.index("make_copies") < text.index("fence_producers") < text.index("remove_copies")
    assert text.index("remove_copies") < text.index("preflight_back")
    assert "watershed.drill." in text
    assert "left out of the rehearsal:\n" in text
    assert text.rstrip().endswith("Nothing was touched.")


def test_a_dry_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["migrate", EXAMPLE, "--drill", "--wave", "canary", "--dry-run", "--format", "json"]
    assert main([*arguments, "--strategy", "fenced"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["wave"]) == ("drill", "canary")
    names = [step["name"] for step in document["steps"]]
    assert names.index("fence_producers") < names.index("stop_consumers"), "another strategy than the file's"
    assert document["back"][0]["name"] == "preflight_back"
    assert any("approval by team-clicks" in each for each in document["left_out"])
    assert all(topic.startswith("watershed.drill.") for topic in document["topics"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--step", "preflight"], "--drill goes without --step"),
        (["--resume"], "end it with --drill --abandon"),
        (["--all-waves"], "each wave is rehearsed by itself"),
        (["--run", "x"], "--drill goes without --run"),
        (["--abandon", "--force"], "--drill goes without --force"),
        (["--status"], "--drill goes without --status"),
        (["--abandon", "--keep"], "--drill --abandon goes without"),
        (["--wave", "orders"], "there is no terminal to ask on"),
        (["--wave", "none", "--approve", "auto"], "there is no wave none"),
    ],
)
def test_wrong_use_is_one_message_and_two(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(["migrate", EXAMPLE, "--drill", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_its_options_go_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--keep"], ["--drill-records", "5"]):
        assert main(["migrate", EXAMPLE, *option]) == 2
        assert "--drill-records and --keep go with --drill" in capsys.readouterr().err


def test_the_table_tells_times_numbers_and_what_was_found() -> None:
    text = render_drill_report(
        {
            "steps": [{"name": "drain", "there": 0.41, "back": 1.0}, {"name": "make_copies", "there": 2, "back": None}],
            "without_writes": {"there": 7.25, "back": None},
            "source": "onprem",
            "target": "cloud",
            "records": {"copied": 1000, "acknowledged": 234},
            "counted": {"lost": 0, "again": 2, "out_of_order": 0},
            "left_out": ["the window"],
            "lacking": ["cluster cloud: WRITE on topic watershed.flows is missing"],
            "left": [],
        }
    )
    assert "  drain            0.4 s      1.0 s" in text
    assert "7.2" in text
    assert "1,234" in text
    assert "    the window" in text
    assert "WRITE on topic watershed.flows is missing" in text
    assert "not removed" not in text
