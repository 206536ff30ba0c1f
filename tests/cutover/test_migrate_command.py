"""`topology migrate --dry-run` and the messages of a command line that cannot run; nothing here needs a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main

SHOP = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: team-shop}
clusters:
  onprem: {bootstrap: ["127.0.0.1:9"], security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:10"], security: {protocol: PLAINTEXT}}
pattern:
  active_standby: {active: onprem, standby: cloud, topics: {include: [orders]}, naming: {policy: identity}}
migration:
  flow: onprem-to-cloud
  strategy: STRATEGY
  applications:
    billing: {http: "http://127.0.0.1:9"}
  waves:
    - name: all
      topics: [orders]
      consumers: [billing]
      producers: [checkout]
      gates:
        before: [{lag: {max_records: 10, hold: 5s}}]
        after: [{stragglers: {watch: 7s}}]
      rollback: {none: "nothing behind the point of no return"}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP.replace("STRATEGY", "consumers_first"))
    return path


def test_dry_run_prints_every_step_with_its_undo_and_the_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(shop), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.count("undo: ") == 19
    assert text.index("tail_proof") < text.index("POINT OF NO RETURN") < text.index("switch_producers")
    assert "stand still for 7 s" in text
    assert "billing (told at http://127.0.0.1:9)" in text
    assert "checkout (a person confirms)" in text


def test_dry_run_as_json(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(shop), "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in document["steps"] if step["point_of_no_return"]] == ["point_of_no_return"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--wave", "other"], "there is no wave other"),
        ([], "--approve auto"),
        (["--approve", "auto", "--run", "../x"], "letters, digits"),
        (["--force"], "--force goes with --abandon"),
        (["--abandon", "--resume"], "--abandon goes without"),
        (["--approve", "auto", "--step", "fly"], "there is no step fly"),
    ],
)
def test_wrong_use_is_one_message_and_two(
    shop: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["migrate", str(shop), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_level_that_is_not_proven_is_refused_before_anything_is_begun(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write_text(shop.read_text().replace("after: [", "after: [{verify: {level: L2}}, "))
    for arguments in (["--dry-run"], ["--approve", "auto"]):
        assert main(["migrate", str(shop), *arguments]) == 2
        assert "gates.after: verify asks for level L2" in (said := capsys.readouterr().err)
        assert "use level L1" in said


def test_another_strategy_is_named(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text(SHOP.replace("STRATEGY", "fenced"))
    assert main(["migrate", str(shop), "--dry-run"]) == 2
    assert "strategy fenced; this version runs consumers_first only" in capsys.readouterr().err
