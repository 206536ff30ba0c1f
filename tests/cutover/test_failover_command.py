"""`topology failover` and `failback` without brokers: dry runs, wrong use, and a source that only hangs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from watershed.cli.failover import _most
from watershed.cli.main import main
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.live.failover_actions import probe_bootstrap_brokers

SHOP = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: team-shop}
clusters:
  onprem: {bootstrap: ["127.0.0.1:9"], security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:10"], security: {protocol: PLAINTEXT}}
pattern:
  active_standby:
    active: onprem
    standby: cloud
    topics: {include: [orders, clicks]}
    naming: {policy: identity}
    failback: {reverse: declared_paused}
migration:
  flow: onprem-to-cloud
  applications: {billing: {http: "http://127.0.0.1:9"}}
  waves:
    - name: first
      topics: [clicks]
      producers: [tracker]
      gates: {before: [{lag: {max_records: 10, hold: 5s}}]}
      rollback: {until: 1h, reverse: cloud-to-onprem}
    - name: second
      topics: [orders]
      consumers: [billing]
      producers: [checkout]
      gates: {before: [{lag: {max_records: 10, hold: 5s}}]}
      rollback: {until: 1h, reverse: cloud-to-onprem}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return path


def test_a_dry_run_promotes_everything_and_shows_the_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failover", str(shop), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "shop: failover of first+second, onprem → cloud" in text
    assert text.index("accept_loss") < text.index("POINT OF NO RETURN") < text.index("cut_workers_off")
    assert "fence_source" not in text
    assert text.endswith("Nothing was touched.\n")
    assert main(["failover", str(shop), "--dry-run", "--though-source-answers", "--wave", "second"]) == 0
    text = capsys.readouterr().out
    assert "failover of second" in text
    assert text.index("fence_source") < text.index("stop_forwarding")


def test_a_dry_run_of_a_failback_begins_with_the_divergence(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failback", str(shop), "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [step["name"] for step in document["steps"]]
    assert names[:4] == ["divergence", "old_groups_empty", "preflight_back", "carry_back"]
    assert names.index("barrier") < names.index("tail_proof") < names.index("point_of_no_return")
    assert document["kind"] == "failback"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["failover", "--accept-loss", "some"], "neither a number of records nor `any`"),
        (["failover", "--force"], "--force goes with --abandon"),
        (["failover", "--abandon", "--resume"], "--abandon goes without"),
        (["failback", "--reveal"], "--reveal goes with --report"),
        (["failback", "--report", "/nowhere/at/all"], "cannot be written"),
        (["failover", "--wave", "third"], "there is no wave third"),
        (["failover", "--run", "a b"], "use letters, digits"),
    ],
)
def test_wrong_use_is_told(shop: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    dry = ["--dry-run"] if "--wave" in arguments else []
    assert main([arguments[0], str(shop), *arguments[1:], *dry]) == 2
    assert told in capsys.readouterr().err


def test_the_loss_that_is_accepted_beforehand() -> None:
    assert (_most(None), _most("17")) == (None, 17)
    assert (_most("any") or 0) > 1 << 60


@contextmanager
def listening() -> Iterator[int]:
    """Takes connections, and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def test_a_source_that_refuses_or_hangs_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.cutover.live.failover_actions._ANSWER_S", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        closed = gone.getsockname()[1]
    with listening() as hanging:
        settings = ConnectionSettings("onprem", (f"127.0.0.1:{closed}", f"127.0.0.1:{hanging}"))
        answers, told = probe_bootstrap_brokers(settings)
    assert not answers
    assert f"127.0.0.1:{closed}: " in told
    assert f"127.0.0.1:{hanging}: " in told
