"""The page of a proof: what it says, what it never does, and that it stays small."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.spark.pages import SIZE, T0, Seen, chunk, difference, document, partition, place, position, whole
from watershed.spark.evidence.evidence_folder import check_evidence_folder, write_evidence_folder
from watershed.spark.evidence.page.html_element import e, escape_hidden, render_html
from watershed.spark.evidence.page.html_page import render_proof_page
from watershed.spark.evidence.page.latency import compute_chunk_delays, pick_quantile
from watershed.spark.evidence.page.records_over_time import TIME_BUCKETS, count_by_bucket

EVIL = '"><script>alert(1)</script><img src=https://example.com/x onerror=alert(2)>'


def seen(tables: Any, **other: Any) -> Seen:
    return Seen(render_proof_page(document(tables, **other), tables))


def test_proven_says_so_with_its_numbers() -> None:
    tables = whole(3, 4)
    found = seen(tables)
    assert "✓ proven" in found.text
    assert "0 unproven 600,000 proven of 600,000 records (100 %)" in found.text
    assert "3 partitions of 1 topic" in found.text
    assert found.count("rect", "batches") == 12 + 1  # chunks, and the legend's
    assert "source: 600,000" in found.text
    assert "different, seen by two reads: 0" in found.text
    assert "Differences" not in found.text
    assert f"proof root sha256:{'cd' * 32}" in found.text


def test_different_names_coordinates_and_no_more() -> None:
    tables = whole(2, 3)
    tables["partitions"][1] |= {"proven": 3 * SIZE - 3, "unproven": 3, "missing": 2, "altered": 1}
    tables["chunks"][4] |= {"status": "different", "reads": 2, "by": "records", "target_records": SIZE - 2}
    tables["diffs"] = [
        difference("missing", 60_000, None, number=1),
        difference("altered", 60_007, 60_006, "value", "timestamp", number=1),
    ]
    found = seen(tables)
    assert "✗ different" in found.text
    assert "3 unproven 299,997 proven of 300,000 records (99.999 %)" in found.text
    assert "orders-1 orders-1@0 altered 60,007 60,006 value, timestamp" in found.text
    assert found.count("rect", "different") == 3  # the chunk, the legend, the bar
    assert "different, seen by two reads: 1" in found.text


def test_lower_bounds_are_told_as_such() -> None:
    tables = whole(1, 1)
    tables["partitions"][0] |= {"proven": 1, "unproven": 49_999, "altered": 49_999}
    assert "at least 49,999 unproven" in seen(tables, exact=False).text


def test_incomplete_says_what_stands_in_the_way() -> None:
    tables = whole(2, 2)
    tables["partitions"][0] |= {"pending": 300, "barrier": 2 * SIZE + 320}
    found = seen(tables, findings=["orders-1: an open transaction holds offsets 5 to 9"], verdict="incomplete")
    assert "… incomplete" in found.text
    assert "What stands in the way orders-1: an open transaction" in found.text
    assert "orders-0: offsets 100,000 – 100,319: 300 records pending" in found.text
    assert "At the barrier 300 records of 1 partition had not been copied." in found.text


def test_an_error_says_nothing_about_records() -> None:
    tables = {"partitions": [], "chunks": []}
    found = seen(tables, verdict="error", error="cannot reach cloud\nCheck <bootstrap>", plan_hash=None)
    assert "! error" in found.text
    assert "Check <bootstrap>" in found.text
    assert not re.search(r"unproven|proof root|Topics", found.text)


def test_metadata_alone_is_no_empty_proof() -> None:
    tables: Any = {"partitions": [], "chunks": []}
    found = seen(tables, verdict="incomplete", findings=["level L0 looks at the topics only"], level="L0")
    assert "No topic was compared." in found.text
    assert "✓" not in found.text


def test_what_an_earlier_proof_has_proven_is_told_apart() -> None:
    tables = whole(1, 3)
    tables["partitions"][0] |= {"proven": SIZE, "proven_earlier": 2 * SIZE}
    for line in tables["chunks"][:2]:
        line |= {"status": "earlier", "reads": 0}
    found = seen(tables)
    assert "150,000 proven of 150,000 records (100 %) – 100,000 of them by earlier proofs" in found.text
    assert "proven earlier, not read again: 2" in found.text


def test_groups_stand_worst_first() -> None:
    tables = whole(1, 1)
    worst = position(group="ship", landing="ahead", landing_records=50, judged="different", why="50 would be lost")
    tables["groups"] = [position(), worst, position(group="audit", judged="unknown", at_target=None)]
    found = seen(tables)
    order = [found.text.index(word) for word in ("✗ different ship", "… unknown audit", "✓ same billing")]
    assert order == sorted(order)
    assert "ahead by 50 records" in found.text
    found = seen(tables, verdict="different", groups={"different": 1})
    assert "No record differs, but 1 position of consumer groups would leave records out" in found.text
    assert "Differences" not in found.text


def test_compacted_partitions_count_keys() -> None:
    tables = whole(2, 1)
    tables["chunks"][1] |= {"status": "state", "by": "records", "why": "compacted"}
    found = seen(tables, window={"fixed_at": None, "partitions": [{**place(1), "mode": "state"}]})
    assert "1 partition judged by the last record of every key (compacted): keys are counted there." in found.text
    assert "orders-1 counts keys onprem-to-cloud" in found.text
    assert "judged by the last record of every key: 1" in found.text
    assert found.count("rect", "different") == 1  # the legend's
    tables["partitions"][1] |= {"altered": 1, "unproven": 1}
    assert "different, seen by two reads: 1" in seen(tables).text


def test_what_was_asked_for_is_told() -> None:
    policy = {"flows": [], "groups": ["billing", EVIL], "level": "L3", "final": True, "since": None, "foreign": True}
    assert f"asked for groups billing {EVIL}, foreign yes time" in seen(whole(1, 1), policy=policy).text
    assert "…" in seen(whole(1, 1), policy={"topics": ["orders"] * 1000}).text


def test_names_never_become_markup() -> None:
    tables = whole(1, 1)
    tables["groups"] = [position(group=EVIL, why=EVIL), position(group="a\u202egnp.exe\x00\ud800")]
    html = render_proof_page(document(tables, findings=[EVIL], not_compared=[EVIL], topology=EVIL, engine=EVIL), tables)
    found = Seen(html)
    assert found.text.count(EVIL) >= 5
    assert found.count("script") == found.count("img") == 0
    assert "a\\u202egnp.exe\\x00\\ud800" in found.text
    html.encode()  # no surrogate is left


def test_nothing_is_loaded_from_anywhere() -> None:
    found = seen(whole(2, 2), findings=[EVIL])
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use", "a"}
    attributes = {name for _, had in found.tags for name in had}
    assert not {name for name in attributes if name.startswith("on")} | attributes & {"src", "href", "style", "srcset"}
    assert set(re.findall(r"url\(([^)]*)\)", found.style)) == {"#p-different", "#p-unverifiable", "#p-pending"}
    assert "@import" not in found.style
    [policy] = [had["content"] for tag, had in found.tags if tag == "meta" and "http-equiv" in had]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize(("partitions", "chunks", "topics"), [(2000, 10, 1), (4, 3, 500), (1, 20_000, 1)])
def test_size_is_bounded_and_what_differs_is_seen(partitions: int, chunks: int, topics: int) -> None:
    tables = whole(partitions, chunks, topics)
    tables["chunks"][len(tables["chunks"]) * 2 // 3]["status"] = "different"
    tables["diffs"] = [difference("missing", 1, None)] * 10_000
    tables["groups"] = [position()] * 10_000
    html = render_proof_page(document(tables), tables)
    assert len(html) < 1_500_000
    found = Seen(html)
    assert found.count("rect", "different") >= 2  # beside the legend's
    assert "The first 200 of 10,000 differences; the others are in the table diffs." in found.text


@example([(1, 0, 0), (1, 129_497_399_253, 6)])
@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**13), st.integers(0, 10**10)), min_size=1, max_size=9)
)
def test_no_record_is_lost_over_time(logs: list[tuple[int, int, int]]) -> None:
    chunks = [{"source_records": n, "source_since": since, "source_until": since + took} for n, since, took in logs]
    low, high = min(c["source_since"] for c in chunks), max(c["source_until"] for c in chunks)
    found = count_by_bucket(chunks, "source", low, max(1.0, (high - low + 1) / TIME_BUCKETS))
    assert sum(found) == pytest.approx(sum(c["source_records"] for c in chunks))


def test_latency_is_known_where_the_target_has_times_of_its_own() -> None:
    late = [
        chunk(0, n, by="records", source_timestamp=f"{SIZE * T0:x}", target_timestamp=f"{SIZE * (T0 + ms):x}")
        for n, ms in enumerate((200, -5, 4000, 900))
    ]
    found = compute_chunk_delays([chunk(0, 9), *late])
    assert [ms for ms, _ in found] == [-5, 200, 900, 4000]
    assert [pick_quantile(found, part) for part in (0.5, 0.9, 1.0)] == [200, 4000, 4000]
    tables = whole(1, 4) | {"chunks": late}
    assert "half 200 ms" in seen(tables).text
    assert "Not known: the copy keeps each record's own timestamp" in seen(whole(1, 4)).text


def test_partitions_that_are_not_on_the_target_have_no_window() -> None:
    lonely = partition(1, 0, pending=70) | dict.fromkeys(("source_start", "source_end", "target_start", "barrier"))
    tables = whole(1, 1)
    tables["partitions"].append(lonely | {"target_end": None})
    assert "orders-1" in seen(tables).text


def test_odd_timestamps_harm_nothing() -> None:
    tables = whole(1, 2)
    for name, stamp in (("since", -1), ("until", -1)):
        tables["chunks"][0] |= {f"source_{name}": stamp, f"target_{name}": stamp}
    tables["chunks"][1] |= {"source_until": 2**62, "target_until": 2**62}
    assert f"{2**62:,} ms" in seen(tables).text


@given(st.text())
def test_whatever_is_told_can_be_read_again(text: str) -> None:
    found = Seen(render_html(e("p", e("b", text, title=text))))
    assert "".join(found.words).replace("\r\n", "\n").strip("\n") == escape_hidden(text).strip("\n")
    assert found.tags[-1][0] == "b"


def test_evidence_is_written_whatever_the_page_stumbles_over(tmp_path: Path) -> None:
    tables: Any = {"partitions": [], "chunks": []}
    whole_document = document(tables, verdict="error", error="no <answer>", exit_code=2, proof_root="", schema=2)
    broken = whole_document | {"seconds": "long"}
    with pytest.raises(ValueError, match="long"):
        render_proof_page(broken, tables)
    for each, told in ((whole_document, "no <answer>"), (broken, "could not be drawn")):
        write_evidence_folder(tmp_path, dict(each), {})
        assert told in Seen((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert not [line for line in check_evidence_folder(tmp_path) if "report" in line]
    (tmp_path / "report.html").write_text("proven")
    assert any("report.html was changed" in line for line in check_evidence_folder(tmp_path))


def test_a_browser_draws_it_without_complaint(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    file = tmp_path / "report.html"
    tables = whole(2, 3)
    file.write_text(render_proof_page(document(tables), tables), encoding="utf-8")
    quiet = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
    told = subprocess.run(
        [browser, "--headless", *quiet.split(), "--disable-sync", "--enable-logging=stderr", "--log-level=0",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in told.stderr
    assert Seen(told.stdout).count("rect", "batches") == 7
