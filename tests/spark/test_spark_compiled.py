"""What a proof may be told to prove: a topology file, or a plan that was compiled already (a rehearsal's)."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.spark.verify import COMPILED_PLAN_SUFFIX, read_plan_or_topology
from watershed.topology import compile_path
from watershed.topology.errors import UnreadablePlan
from watershed.topology.plan import encode_plan

EXAMPLE = Path("topology/examples/active_standby.yaml")


def test_a_compiled_plan_is_taken_as_it_is_and_never_one_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / f"drill{COMPILED_PLAN_SUFFIX}"
    path.write_text(encode_plan(compile_path(EXAMPLE)))
    assert read_plan_or_topology(path) == compile_path(EXAMPLE) == read_plan_or_topology(EXAMPLE)
    path.write_text(path.read_text().replace("earliest", "latest"))
    with pytest.raises(UnreadablePlan):
        read_plan_or_topology(path)
