"""evidence.html of a journal that somebody has written into: no markup, no script, and never no evidence."""

from __future__ import annotations

import copy
import json
import os
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.test_crash_matrix import everything
from tests.cutover.test_evidence_pack import packed
from tests.cutover.world import World
from watershed.cutover.evidence.page import EVIDENCE_PAGE_CSP, render_evidence_page, render_run_evidence
from watershed.cutover.evidence.proof_summary import read_proof_summary

DEEP: Any = "end"
for _ in range(200):
    DEEP = [DEEP]
FORGED: list[Any] = [
    "</script><img src=x onerror=alert(1)>",
    "'><b>",
    '"><base href=//elsewhere>',
    "\u202egnp.exe\x1b[31m",
    "\ud800",
    float("nan"),
    float("inf"),
    10**400,
    -(10**30),
    True,
    None,
    [],
    {},
    DEEP,
    {"</td><form action=//elsewhere>": 1},
]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "action", "onerror"}


def harmless(told: str) -> None:
    tags = Tags()
    tags.feed(told)
    assert not {"script", "img", "base", "form", "iframe"} & set(tags.seen)
    assert EVIDENCE_PAGE_CSP in told
    told.encode()
    assert not {"\u202e", "\x1b"} & set(told)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of every value in the document, whole parts included."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in below for place in places(each, (*at, key)))]


def test_a_forged_value_anywhere_is_no_markup(tmp_path: Path) -> None:
    document, _ = packed(tmp_path, World(), everything("consumers_first"))
    sites = [place for place in places(document) if place][:: max(1, len(places(document)) // 150)]
    assert len(sites) >= 23
    for number, site in enumerate(sites):
        for value in (FORGED[number % len(FORGED)], FORGED[0]):
            forged = copy.deepcopy(document)
            inner = forged
            for key in site[:-1]:
                inner = inner[key]
            inner[site[-1]] = value
            harmless(render_evidence_page(forged))


@pytest.mark.parametrize("name", ["wave", "run", "strategy", "began", "took_ms", "plan", "topology", "source"])
@pytest.mark.parametrize("value", FORGED[:9], ids=repr)
def test_what_is_only_shown_is_drawn_whatever_it_is(tmp_path: Path, name: str, value: Any) -> None:
    document, _ = packed(tmp_path, World(), everything("consumers_first"))
    told = render_run_evidence(document | {name: value})
    harmless(told)
    assert "<h2>Steps</h2>" in told


def test_offsets_and_partitions_are_text_too(tmp_path: Path) -> None:
    document, _ = packed(tmp_path, World(), everything("consumers_first"))
    [group, *_] = document["groups"].values()
    group["partitions"] = [{"topic": "t", "partition": FORGED[0], "before": FORGED[1], "after": FORGED[2]}]
    group["landing"] = {"same_record": FORGED[0], "at_end": 1}
    told = render_run_evidence(document)
    harmless(told)
    assert told.count("&lt;img") == 2


def test_a_page_that_cannot_be_drawn_says_so() -> None:
    told = render_evidence_page({"kind": "<img src=x>"})
    harmless(told)
    assert "could not be drawn" in told


def test_a_pack_is_not_for_everybody_and_not_written_through_links(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder, other = tmp_path / "pack", tmp_path / "other"
        other.write_text("theirs")
        folder.mkdir()
        (folder / "evidence.json").symlink_to(other)
        packed(tmp_path, World(), everything("consumers_first"))
    finally:
        os.umask(before)
    assert other.read_text() == "theirs"
    for name in ("evidence.json", "evidence.html"):
        assert stat.S_IMODE((folder / name).lstat().st_mode) == 0o640
    assert json.loads((folder / "evidence.json").read_text())["state"] == "done"


@pytest.mark.parametrize("unproven", ["0", -1, True, float("nan"), float("inf"), [0], {}, None, 0.0], ids=repr)
def test_a_summary_that_no_proof_writes_proves_nothing(tmp_path: Path, unproven: Any) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"verdict": "proven", "unproven": 0}))
    assert read_proof_summary(path).verdict == "proven"
    path.write_text(json.dumps({"verdict": "proven", "unproven": unproven}))
    assert read_proof_summary(path).verdict == "error"


@pytest.mark.parametrize("content", ["[" * 5_000 + "]" * 5_000, "[]", '"proven"', "\x00"])
def test_what_is_no_summary_proves_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(content)
    assert read_proof_summary(path).verdict == "error"
    path.unlink()
    (tmp_path / "other.json").write_text(json.dumps({"verdict": "proven", "unproven": 0}))
    path.symlink_to(tmp_path / "other.json")
    assert read_proof_summary(path).verdict == "error"
