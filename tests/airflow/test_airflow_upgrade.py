"""A run of a real Airflow that v0.1.0 began and this version goes on with, and the other way round.

DAGs, operators, triggers and page are those of the version that Airflow finds first (PYTHONPATH). Workers and
applications are this version's throughout. The journal and the applications' own records are the judges.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.airflow.live import Live, assert_nothing_is_lost, read_journal, running, until
from tests.upgrade.conftest import previous  # noqa: F401  the fixture
from watershed import IMPORT_ROOT
from watershed.lab.airflow_client import FINAL_RUN_STATES

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab
    from watershed.lab.previous_version import InstalledRelease

pytestmark = [getattr(pytest.mark, mark) for mark in ("kafka", "airflow", "spark", "slow", "soak")]
RUN = "upgraded"


def test_a_run_goes_on_over_an_upgrade_and_over_the_way_back(
    kafka_pair: Lab,
    previous: InstalledRelease,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Wave `orders` waits for its approval when v0.1.0 ends, and is moved by this version. Wave `paid` waits when this
    version ends, and is moved by v0.1.0."""
    older, python = choose_version(previous.root), str(previous.python)
    with running(kafka_pair, "upgraded", tmp_path, older, python) as live:
        assert live.client.import_errors() == []
        live.client.unpause(live.dag)
        live.client.trigger(live.dag, RUN, {"waves": ["orders", "paid"]})
        live.question(RUN, "orders.approval")
        before = live.states(RUN)
        assert begins_with_steps(live, "orders") is False, "v0.1.0 does not write them"

        live.install(choose_version(IMPORT_ROOT))
        assert live.client.import_errors() == []
        assert live.states(RUN) == before, "what waits still waits, and no task came or went"
        approve(live, "orders")
        live.wait_task(RUN, "orders.end", "success")
        assert set(live.where("orders", f"{live.name}-billing").values()) == {("running", "cloud")}

        live.question(RUN, "paid.approval")
        assert begins_with_steps(live, "paid") is True
        live.install(older, python)
        assert live.client.import_errors() == []
        approve(live, "paid")
        until(lambda: live.client.run_state(live.dag, RUN) in FINAL_RUN_STATES, "the end of the run")
        assert live.client.run_state(live.dag, RUN) == "success", live.failures(live.dag, RUN)
        assert set(live.where("payments", f"{live.name}-ledger").values()) == {("running", "cloud")}
        for wave in ("orders", "paid"):
            last = read_journal(live, RUN, wave)[-1]
            assert (last.step, last.observation["state"]) == ("run", "done")
        assert_nothing_is_lost(live)


def choose_version(root: Path) -> dict[str, str]:
    """Airflow's settings for the Watershed in this folder, whatever stands in the current one."""
    return {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}


def approve(live: Live, wave: str) -> None:
    """By a person, who finds the question again after the restart."""
    live.user("ops").answer(live.question(RUN, f"{wave}.approval"), "Approve")
    live.wait_task(RUN, f"{wave}.approval", "success")


def begins_with_steps(live: Live, wave: str) -> bool:
    """Whether this version began the wave's run: its first entry names the steps."""
    return "steps" in read_journal(live, RUN, wave)[0].observation
