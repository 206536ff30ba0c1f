"""`verify:` of a flow and `rack` of a cluster, from the file to the plan and back."""

from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.errors import InvalidTopology
from watershed.topology.plan import Plan, decode_plan, encode_plan
from watershed.topology.proof_policy import ProofPolicy

FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: shop}}
clusters:
  a: {{bootstrap: ["a1:9092"]{rack}}}
  b: {{bootstrap: ["b1:9092"]}}
flows:
  - source: a
    target: b
    topics: {{include: [orders]}}
{verify}
"""


def compiled(folder: Path, verify: str = "", rack: str = "") -> Plan:
    path = folder / "shop.yaml"
    path.write_text(FILE.format(verify=f"    verify: {verify}" if verify else "", rack=rack))
    return compile_path(path)


def test_everything_that_is_said_is_in_the_plan(tmp_path: Path) -> None:
    said = "{every: 6h, level: L2, rate: 20MiB/s, fetches: 2, pause_at_lag: 5m, recheck: 5%}"
    plan = compiled(tmp_path, said, ", rack: west-1")
    assert plan.flow("a-to-b").verify == ProofPolicy(21_600_000, "L2", 20 << 20, 2, 300_000, 0.05)
    assert plan.cluster("a").rack == "west-1"
    assert decode_plan(encode_plan(plan)) == plan


def test_what_is_not_said_leaves_the_hash_of_older_plans(tmp_path: Path) -> None:
    plan = compiled(tmp_path, "{every: 6h}")
    flow = plan.flow("a-to-b").to_json()
    assert flow["verify_every_ms"] == 21_600_000
    assert "verify" not in flow
    assert "rack" not in plan.cluster("a").to_json()
    assert decode_plan(encode_plan(plan)) == plan


@pytest.mark.parametrize(
    "wrong",
    ["{rate: 20}", "{rate: 0B/s}", "{rate: 0.0MiB/s}", "{fetches: 0}", "{recheck: 120%}", "{pause_at_lag: soon}"],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InvalidTopology, match="verify"):
        compiled(tmp_path, wrong)
