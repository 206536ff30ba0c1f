"""The evidence pack: whatever a run came to, it says what was seen, what was done, and who decided."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.spoils import Spoil, failing, straggle, upon, verdict
from tests.cutover.test_crash_matrix import STRATEGIES, everything
from tests.cutover.world import GROUP, PRODUCER, World, a_migration, a_plan
from watershed.cutover.actions import ReadLogs, RetireTopics
from watershed.cutover.observations import ApprovalAnswer
from watershed.cutover.policy import WavePolicy


def packed(tmp_path: Path, world: World, policy: WavePolicy, **changes: Any) -> tuple[dict[str, Any], str]:
    """What was written of a run: the document, and the page."""
    plan = a_plan(strategy=policy.strategy)
    a_migration(world, FakeLog(), plan=plan, policy=policy, evidence=tmp_path / "pack", run_id="<r1>", **changes).run()
    return json.loads((tmp_path / "pack" / "evidence.json").read_text()), (
        tmp_path / "pack" / "evidence.html"
    ).read_text()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_of_a_run_that_is_done(tmp_path: Path, strategy: Any) -> None:
    approve = lambda ask: ApprovalAnswer(0, True, "ann & bob", "seen <it>")  # noqa: E731
    wanted = replace(everything(strategy), soak_approvals=("ops",))
    document, page = packed(tmp_path, World(), wanted, approve=approve)
    assert (document["state"], document["kind"], document["strategy"]) == ("done", "migrate", strategy)
    steps = {step["name"]: step for step in document["steps"]}
    assert all(step["duration_ms"] is not None for name, step in steps.items() if name != "seal")
    assert all(step["outcome"] for name, step in steps.items() if name != "seal")
    assert {name: proof["unproven"] for name, proof in document["proofs"].items()} == {
        "history_proof": 0,
        "tail_proof": 0,
    }
    group = document["groups"][GROUP]
    assert group["committed"] == group["translated"]
    assert group["landing"]["waiting"] == []
    assert group["source_before"]
    assert document["barrier"]
    assert document["cut"]
    assert document["producers_stopped_ms"] > 0
    assert document["fence"]["kind"] == "acl"
    assert document["fence"]["stands"]
    assert document["fence"]["stopped"] == [{"name": PRODUCER, "by": "endpoint"}]
    assert [(each["asked"], each["by"]) for each in document["approvals"]] == [
        ("operator", "ann & bob"),
        ("ops", "ann & bob"),
    ]
    assert {each["hook"] for each in document["hooks"]} == {"ticket", "dns", "told", "ready", "well"}
    assert [(each["name"], each["state"], each["truth"]) for each in document["waves"]] == [("all", "done", "cloud")]
    assert document["journal"]["root"].startswith("sha256:")
    _well_formed(page)
    assert "0 unproven" in page
    assert "seen &lt;it&gt;" in page
    assert "Producers were stopped for at most" in page


RUNS: list[tuple[str, Spoil, str, str]] = [
    (
        "rolled_back",
        upon(ReadLogs, straggle, step="point_of_no_return"),
        "point_of_no_return",
        "everything was taken",
    ),
    ("refused", verdict("different", 2), "history_proof", "before anything was changed"),
    ("stopped", failing(RetireTopics, "retire_topics"), "", "Not finished: stopped"),
]


@pytest.mark.parametrize(("state", "spoil", "step", "words"), RUNS, ids=[run[0] for run in RUNS])
def test_of_a_run_that_is_not(tmp_path: Path, state: str, spoil: Spoil, step: str, words: str) -> None:
    world = World()
    spoil(world)
    document, page = packed(tmp_path, world, everything("consumers_first"))
    assert document["state"] == state
    assert [each["name"] for each in document["steps"] if each["refused"]] == ([step] if step else [])
    if state == "rolled_back":
        assert document["undone"] == [
            "undo_fence_producers",
            "undo_start_consumers",
            "undo_commit_offsets",
            "undo_stop_consumers",
            "undo_hooks",
        ]
        assert document["undoing_ms"] >= 0
        assert not document["fence"]["stands"]
        assert document["waves"][0]["truth"] == "onprem"
    _well_formed(page)
    assert words in page
    assert "class='band bad'" in page


def test_a_pack_that_cannot_be_written_ends_no_rollback(tmp_path: Path) -> None:
    """Of a run that was taken back the pack is a service; without it the run ends all the same, and says so."""
    world = World()
    (tmp_path / "pack").write_text("a file where the directory should be")
    upon(ReadLogs, straggle, step="point_of_no_return")(world)
    plan = a_plan()
    result = a_migration(world, FakeLog(), plan=plan, evidence=tmp_path / "pack").run()
    assert result.state == "rolled_back"
    assert any("the evidence cannot be written" in line for line in world.said)


def test_a_run_whose_pack_cannot_be_written_is_not_done(tmp_path: Path) -> None:
    """A full disk (C32) ends no migration as done without its evidence; --resume seals it."""
    world, log = World(), FakeLog()
    (tmp_path / "pack").write_text("a file where the directory should be")
    result = a_migration(world, log, evidence=tmp_path / "pack").run()
    assert (result.state, result.step) == ("stopped", "seal")
    assert "the evidence cannot be written" in result.reason
    (tmp_path / "pack").unlink()
    assert a_migration(world, log, "second", resume=True, evidence=tmp_path / "pack").run().state == "done"
    assert (tmp_path / "pack" / "evidence.html").exists()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}, "the page loads something"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _well_formed(page: str) -> None:
    """Every tag closed, nothing loaded, no script, and nothing of the run's own texts is a tag."""
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {"script", "img", "link", "iframe", "r1"} & tags.seen
    assert "&lt;r1&gt;" in page


def test_of_a_failover_that_declares_its_loss(tmp_path: Path) -> None:
    from watershed.cutover.evidence.page import render_run_evidence

    document, _ = packed(tmp_path, World(), everything("fenced"))
    document |= {"kind": "failover", "proofs": {}, "loss": {"offsets": 3, "rpo_ms": 2_000}}
    told = render_run_evidence(document)
    _well_formed(told)
    assert "Failover of shop" in told
    assert "accepted as missing: at most 3 records, 2.0 s of writing." in told
