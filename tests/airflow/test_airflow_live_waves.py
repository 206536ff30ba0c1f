"""Two waves in a real Airflow: a second run beside the first, a task that a person marks, a wave that is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.airflow.live import Live, running, until
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.cutover.errors import Locked
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import plan_migration
from watershed.plugins.steps.run_journal import open_migration_journal

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [getattr(pytest.mark, mark) for mark in ("kafka", "airflow", "spark", "slow", "soak")]
RUN = "live"


@pytest.fixture(scope="module")
def live(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The first wave is done, the second one asks for an approval."""
    with running(kafka_pair, "waves", tmp_path_factory.mktemp("live-waves")) as found:
        found.client.unpause(found.dag)
        found.client.trigger(found.dag, RUN, {"waves": ["orders", "paid"]})
        found.client.answer(found.question(RUN, "orders.approval"), "Approve")
        found.wait_task(RUN, "orders.end", "success")
        yield found


def test_a_second_run_is_refused_and_names_the_holder(live: Live) -> None:
    """C05: by another process at once; by a second DAG run, as Airflow holds it back, when its turn has come."""
    live.question(RUN, "paid.approval")
    live.client.trigger(live.dag, "second", {"waves": ["orders"]})
    other = open_run(
        live.plan,
        plan_migration(live.plan, "paid"),
        {str(c.alias): _settings(live, str(c.alias)) for c in live.plan.clusters},
        prove=lambda _wanted: pytest.fail("it must not come to that"),
    )
    with pytest.raises(
        Locked, match=rf"run migrate\.{RUN}\.paid, begun by airflow {live.dag} for admin at .* approval"
    ):
        other.run()
    assert live.client.run_state(live.dag, "second") == "queued"


def test_a_marked_task_does_not_fool_the_next_one(live: Live) -> None:
    """C27, C24: the wave that is refused is taken back, the one that is done stays done.

    The next step is tried at once, and its wave given up, while a person still decides; a yes that comes then moves
    nothing any more."""
    question = live.question(RUN, "paid.approval")
    live.client.mark(live.dag, RUN, "paid.move_consumers", "success")
    live.wait_task(RUN, "paid.take_back", "success")
    live.client.answer(question, "Approve")
    until(lambda: live.client.run_state(live.dag, RUN) == "failed", "the end of the run")
    assert any("has to wait" in line for line in live.client.log(live.dag, RUN, "paid.move_producers"))
    states = live.states(RUN)
    assert states["orders.end"] == states["paid.take_back"] == "success"
    assert (states["orders.take_back"], states["watcher"]) == ("skipped", "failed")
    paid = open_migration_journal(live.plan, "a test").refresh().run(f"migrate.{RUN}.paid")
    assert paid[-1].observation["state"] in ("refused", "rolled_back")
    assert set(live.where("payments", f"{live.name}-ledger").values()) == {("running", "onprem")}


def test_a_wave_that_is_done_is_passed_over(live: Live) -> None:
    until(lambda: live.client.run_state(live.dag, "second") == "success", "the second run")
    assert live.states("second")["orders.begin"] == "skipped"


def _settings(live: Live, alias: str) -> ConnectionSettings:
    return resolve_connection_settings(live.plan.cluster(alias))
