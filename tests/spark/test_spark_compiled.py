"""What a proof may be told to prove: a topology file, or a plan that was compiled already (a rehearsal's)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.verify import COMPILED, plan_at
from topology import compile_path
from topology.errors import UnreadablePlan
from topology.plan import plan_json

EXAMPLE = Path("topology/examples/active_standby.yaml")


def test_a_compiled_plan_is_taken_as_it_is_and_never_one_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / f"drill{COMPILED}"
    path.write_text(plan_json(compile_path(EXAMPLE)))
    assert plan_at(path) == compile_path(EXAMPLE) == plan_at(EXAMPLE)
    path.write_text(path.read_text().replace("earliest", "latest"))
    with pytest.raises(UnreadablePlan):
        plan_at(path)
