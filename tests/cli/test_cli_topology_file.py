"""The commands over the file, as processes: exit codes, one message each, no traceback, no heavy import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "topology" / "examples"
HEAVY = ("airflow", "pyspark", "confluent_kafka", "pandas", "kio")


def topology(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "watershed.cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=EXAMPLES.parents[1], check=False)
    assert "Traceback" not in done.stderr
    return done


def test_the_loop_is_drawn() -> None:
    done = topology("lint", EXAMPLES / "broken" / "loop.yaml")
    assert done.returncode == 1
    assert "cycle: cloud/orders -> onprem/orders -> cloud/orders" in done.stdout


def test_clean_files_are_fine_and_json_is_one_document() -> None:
    done = topology("lint", "--format", "json", EXAMPLES)
    assert done.returncode == 0
    assert json.loads(done.stdout)["counts"] == {"error": 0, "warning": 0, "info": 0}


def test_compile_gives_the_contract(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    assert topology("compile", EXAMPLES / "chain.yaml", "-o", out).returncode == 0
    plan = json.loads(out.read_text())
    assert plan["schema"] == 1
    assert plan["hash"].startswith("sha256:")
    assert [flow["id"] for flow in plan["flows"]] == ["port-to-cloud", "ship-to-port"]
    assert topology("compile", EXAMPLES / "broken" / "loop.yaml").returncode == 1


@pytest.mark.parametrize("command", ["lint", "compile", "graph"])
def test_a_missing_file_is_one_message(command: str, tmp_path: Path) -> None:
    done = topology(command, tmp_path / "none.yaml")
    assert done.returncode == 2
    assert "No such file" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_explain_names_rules_and_origins() -> None:
    assert "identity-cycle" in topology("explain", "GRF201").stdout
    done = topology("explain", "hub-to-milan.naming.policy", EXAMPLES / "hub_and_spoke.yaml")
    assert done.stdout.startswith('hub-to-milan.naming.policy = "identity"')
    assert topology("explain", "GRF999").returncode == 2
    done = topology("explain", "east-to-all-east.delivery", EXAMPLES / "active_active_aggregate.yaml")
    assert "delivery = transactions  (west-to-all-east writes trips.* in all-east, too)" in done.stdout


def test_unknown_command_offers_the_nearest() -> None:
    done = topology("lintt")
    assert done.returncode == 2
    assert "Did you mean `lint`" in done.stderr


def test_linting_imports_nothing_heavy() -> None:
    script = (
        "import sys; from watershed.cli.main import main; code = main(['lint', 'topology/examples'])\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=EXAMPLES.parents[1], timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")
    (tmp_path / "b.yaml").write_bytes((EXAMPLES / "broken" / "loop.yaml").read_bytes())
    done = topology("lint", tmp_path, tmp_path / "missing.yaml", "--format", "json")
    assert done.returncode == 2
    assert "GRF201" in {finding["rule"] for finding in json.loads(done.stdout)["findings"]}
    assert "this is a ConfigMap" in done.stderr
    assert "missing.yaml" in done.stderr


def test_registries_are_asked_with_spark_only() -> None:
    done = topology("lint", EXAMPLES / "migration.yaml", "--registries")
    assert done.returncode == 2
    assert "--registries goes with --spark" in done.stderr
