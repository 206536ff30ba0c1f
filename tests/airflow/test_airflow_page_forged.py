"""What the page answers when somebody has written into summaries and folders of proofs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.page_world import asked, proof_in
from watershed.plugins.page.routes import MAX_SAFE_INTEGER, _visible
from watershed.plugins.page.step_evidence import flatten_evidence, render_gate_brief

pytestmark = pytest.mark.airflow
DEEP = "[" * 5_000 + "]" * 5_000
FORGED: list[dict[str, Any]] = [
    {"verdict": "</script><script>alert(1)</script>"},
    {"verdict": ["proven"]},
    {"verdict": {"a": 1}},
    {"verdict": 1},
    {"verdict": None},
    {"verdict": "PROVEN"},
    {"unproven": "0"},
    {"unproven": -1},
    {"unproven": True},
    {"unproven": float("nan")},
    {"unproven": float("inf")},
    {"unproven": 10**400},
    {"unproven": [0]},
    {"unproven": None},
    {"unproven": 7},
]
BESIDE: list[dict[str, Any]] = [
    {"records": float("nan")},
    {"records": 10**400},
    {"altered": "<b>"},
    {"findings": "text"},
    {"findings": [{"a": float("nan")}, ["b"], 3, "told"]},
    {"findings": {"a": 1}},
    {"level": {"deep": [[[]]]}},
    {"mode": float("-inf")},
    {"ended_at": ["</script>"]},
    {"proof_root": 10**30},
]


def of_shop(page: TestClient) -> dict[str, Any]:
    [found] = asked(page, "proofs", topology="shop")["proofs"]
    return dict(found)


@pytest.mark.parametrize("forged", FORGED, ids=repr)
def test_a_forged_verdict_is_none(page: TestClient, state: Path, forged: dict[str, Any]) -> None:
    proof_in(state, "verify__shop", **({"verdict": "proven", "unproven": 0} | forged))
    assert of_shop(page)["verdict"] == "none"


@pytest.mark.parametrize("forged", BESIDE, ids=repr)
def test_a_forged_value_beside_it_is_left_out(page: TestClient, state: Path, forged: dict[str, Any]) -> None:
    proof_in(state, "verify__shop", **({"verdict": "proven", "unproven": 0, "records": 9} | forged))
    found = of_shop(page)
    assert (found["verdict"], found["unproven"], found["counts"]) == ("proven", 0, {})
    [name] = forged
    assert found.get(name) in (None, [], ["told"])


@pytest.mark.parametrize("content", [DEEP, "[1]", '"proven"', "\x00", "1" * 10_000, ""])
def test_a_summary_that_is_none_hides_no_other(page: TestClient, state: Path, content: str) -> None:
    folder = proof_in(state, "verify__shop", verdict="proven", unproven=0)
    (folder / "summary.json").write_text(content)
    proof_in(state, "migrate__shop", verdict="different", unproven=3)
    found = {each["dag"]: each["verdict"] for each in asked(page, "proofs", topology="shop")["proofs"]}
    assert found == {"verify__shop": "none", "migrate__shop": "different"}


def test_a_link_is_no_proof(page: TestClient, state: Path) -> None:
    """Neither a summary that leads elsewhere nor the folder of a run."""
    other = proof_in(state, "verify__sites", verdict="proven", unproven=0)
    folder = proof_in(state, "verify__shop", verdict="different", unproven=1)
    (folder / "summary.json").unlink()
    (folder / "summary.json").symlink_to(other / "summary.json")
    (folder.parents[2] / "linked").symlink_to(other.parents[1])
    assert of_shop(page)["verdict"] == "none"


def test_what_no_browser_can_hold_is_unknown() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = {"a": deep}
    told = _visible(
        {"nan": float("nan"), "inf": -float("inf"), "big": 10**400, "most": MAX_SAFE_INTEGER, "yes": True, "d": deep}
    )
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["nan"], told["inf"], told["big"], told["most"], told["yes"]) == (
        None,
        None,
        None,
        MAX_SAFE_INTEGER,
        True,
    )
    assert "\ud800" not in json.dumps(_visible("\ud800"), ensure_ascii=False)


def test_a_time_that_there_is_not_is_a_number() -> None:
    [[where, told]] = flatten_evidence({"opens_ms": 10**30})
    assert (where, told) == ("opens_ms", f"{10**30:,}")
    assert render_gate_brief("window", {"opens": "<b>"}) == "opens <b>"
