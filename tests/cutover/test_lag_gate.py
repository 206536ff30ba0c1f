"""The gate that waits for a flow to keep up: what it counts, and what it says where it cannot open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import assert_moved
from tests.cutover.world import World, a_migration
from watershed.cutover.actions import Action, ReadCopies, ReadLogs
from watershed.cutover.failover.failback_plan import preview_failback
from watershed.cutover.gates import STEADY_LAG_MS, SteadyLag
from watershed.cutover.observations import Observation
from watershed.cutover.rollback.rollback_plan import preview_rollback
from watershed.topology import compile_path

FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: shop, owner: tests}}
clusters:
  onprem: {{bootstrap: ["127.0.0.1:1"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["127.0.0.1:2"], security: {{protocol: PLAINTEXT}}}}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [orders]}}, workers: {{engine: process}}}}
  - {{source: cloud, target: onprem, state: paused, topics: {{include: [orders]}}, workers: {{engine: process}}}}
migration:
  flow: onprem-to-cloud
  waves:
    - name: all
      topics: [orders]
      consumers: [billing]
      producers: [checkout]
      gates: {{before: [{lag}{{approval: team}}]}}
      rollback: {{until: 1h, reverse: cloud-to-onprem}}
"""


def test_what_is_written_while_the_gate_looks_is_not_behind() -> None:
    """A look takes as long as ten rounds of a producer that is copied at once; the gate is ten records."""
    world = World()

    def go_on(action: Action) -> Observation | None:
        now = next((line for line in reversed(world.said) if ": begin" in line), "")
        if isinstance(action, ReadLogs | ReadCopies) and now.startswith("lag_gate: "):
            for _ in range(10):
                world.tick()
        return None

    world.hook = go_on
    assert_moved(world, a_migration(world, FakeLog()).run())


def test_a_lag_that_stays_above_the_gate_is_explained() -> None:
    steady = SteadyLag(1_000)
    assert steady.describe(0, 8_000, 5) == ""  # it catches up
    assert steady.describe(1_000, 2_600, 0) == ""
    assert steady.describe(STEADY_LAG_MS, 743 + 1_000, 0) == ""
    told = steady.describe(1_000 + STEADY_LAG_MS, 8_781, 0)
    assert told.startswith(". For 60 s it has been 1743 to 8781")
    assert "gates.before.lag.max_records above 8781" in told
    assert steady.describe(2_000 + STEADY_LAG_MS, 1_000, 0) == ""  # the gate opens: counted anew
    assert steady.describe(3_000 + STEADY_LAG_MS, 2_000, 0) == ""


@pytest.mark.parametrize(
    ("lag", "bound", "hold_ms"),
    [
        ("{lag: {max_records: 7000, hold: 10m}}, ", 7_000, 3_000),
        ("{lag: {max_records: 7000, hold: 1s}}, ", 7_000, 1_000),
    ],
)
def test_the_way_back_has_the_gate_of_the_file(tmp_path: Path, lag: str, bound: int, hold_ms: int) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(lag=lag))
    plan = compile_path(file)
    for course in (preview_rollback(plan, "all"), preview_failback(plan, "all")):
        assert (course.policy.max_lag, course.policy.hold_ms) == (bound, hold_ms)
        [gate] = [step for step in course.steps if step.name == "lag_gate"]
        assert f"at most {bound} records behind" in gate.does
