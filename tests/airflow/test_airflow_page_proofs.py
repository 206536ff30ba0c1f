"""What the page Replication says of proofs."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow.page_world import asked, proof_in

pytestmark = pytest.mark.airflow


def test_proofs_with_their_verdicts(page: TestClient, state: Path) -> None:
    proof_in(state, "verify__shop", verdict="different", unproven=3, altered=3, records=9, findings=["3 altered"])
    proof_in(state, "migrate__shop")
    proof_in(state, "verify__sites", verdict="proven", unproven=0)
    found = {each["dag"]: each for each in asked(page, "proofs", topology="shop")["proofs"]}
    assert set(found) == {"verify__shop", "migrate__shop"}
    verify = found["verify__shop"]
    assert (verify["verdict"], verify["unproven"], verify["counts"], verify["report"]) == (
        "different",
        3,
        {"altered": 3},
        True,
    )
    assert (found["migrate__shop"]["verdict"], found["migrate__shop"]["report"]) == ("none", False)
    assert asked(page, "proofs", topology="shop", run="another")["proofs"] == []


@pytest.mark.parametrize("run", ["r" * 256, "ä" * 128, "x" * 5_000])
def test_a_run_that_no_folder_can_be_called_by_has_no_proofs(page: TestClient, state: Path, run: str) -> None:
    proof_in(state, "verify__shop", verdict="proven", unproven=0)
    assert asked(page, "proofs", topology="shop", run=run)["proofs"] == []
