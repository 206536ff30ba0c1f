"""The live table: what it shows of a flow, and that it follows."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from watershed.cli.flow_record_text import render_flow_lag
from watershed.cli.status import _flows, _table
from watershed.cli.status_table import draw_sparkline, draw_status_table, render_delay, watch_flows
from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.worker.flow_state import is_lag_lower_bound
from watershed.topology import compile_path
from watershed.topology.rounded_amounts import render_decimal_size

PARTITION = {
    "flow": "onprem-to-cloud",
    "target_topic": "orders",
    "target_end": 9,
    "topic": "orders",
    "partition": 3,
    "state": "running",
    "error": None,
    "remedy": None,
    "open_records": 0,
    "lag_records": 1204,
    "young": True,
    "note": None,
}
FLOW = {
    "id": "onprem-to-cloud",
    "state": "running",
    "desired": "running",
    "lag_records": 1204,
    "lag_is_lower_bound": False,
    "lag_bytes": 3_100_000,
    "lag_ms": 400,
    "rate_bytes": 2_500_000.0,
    "versions": [],
    "partitions": [PARTITION],
}


def _drawn(*flows, width=140) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(draw_status_table("shop", list(flows), {}))
    return console.file.getvalue()


def test_copies_of_others_are_told_below_the_table():
    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    console.print(draw_status_table("shop", [FLOW], {}, ["copied by others, never by us:", "  old: b to a"]))
    assert "copied by others, never by us:\n  old: b to a\n" in console.file.getvalue()


def test_a_flow_is_one_line():
    [line] = [line for line in _drawn(FLOW).splitlines() if "onprem-to-cloud" in line]
    for told in ("running", "1,204 (3.1 MB)", "0.4 s", "2.5 MB/s"):
        assert told in line


def test_the_guarantee_is_told_in_both_tables():
    flow = FLOW | {"guarantee": "exactly_once: sequence"}
    assert "  onprem-to-cloud: guarantee: exactly_once: sequence" in _drawn(flow)
    assert "\n  guarantee: exactly_once: sequence" in _table([flow])
    assert "guarantee" not in _drawn(FLOW | {"guarantee": None})


def test_what_needs_a_person_is_told_with_its_remedy():
    loud = PARTITION | {"state": "source_expired", "error": "offsets 5 to 9 are gone", "remedy": "decide"}
    drawn = _drawn(FLOW | {"state": "source_expired", "partitions": [loud]})
    assert "orders-3: source_expired: offsets 5 to 9 are gone" in drawn
    assert "what to do: decide" in drawn


def test_an_open_transaction_is_told():
    drawn = _drawn(FLOW | {"partitions": [PARTITION | {"open_records": 17}]})
    assert "17 offsets wait for a transaction at the source to end" in drawn


def test_many_partitions_in_trouble_are_counted():
    rows = [PARTITION | {"partition": number, "error": "x"} for number in range(40)]
    assert "28 more partitions" in _drawn(FLOW | {"partitions": rows})


def test_partitions_of_which_the_same_is_told_are_one_entry():
    """They differ in names and numbers; another problem stands by itself."""
    expired = [
        PARTITION
        | {
            "partition": number,
            "state": "source_expired",
            "error": f"offsets {number} to {number + 90} of orders are gone",
            "remedy": f"`topology flow accept-gap FILE onprem-to-cloud orders {number}`",
        }
        for number in range(1_200)
    ]
    other = PARTITION | {"partition": 1_200, "state": "unauthorised", "error": "the source refuses READ"}
    told = _table([FLOW | {"sync": [], "partitions": [*expired, other]}]).splitlines()[2:]
    assert told == [
        "  orders-0, orders-1, orders-2 and 1,197 more alike; the first: "
        "source_expired: offsets 0 to 90 of orders are gone",
        "    what to do: `topology flow accept-gap FILE onprem-to-cloud orders 0`",
        "  orders-1200: unauthorised: the source refuses READ",
    ]
    few = _table([FLOW | {"sync": [], "partitions": expired[:3]}])
    assert [f"orders-{number}: source_expired: offsets {number} to" in few for number in range(3)] == [True] * 3


def test_partitions_in_the_old_regime_are_counted():
    assert "one batch in flight" not in _drawn(FLOW)
    old = PARTITION | {"young": False, "target_end": 9}
    rows = [old | {"target_end": 0}, old, old | {"state": "catching_up"}, old | {"state": "paused"}]
    flow = FLOW | {"partitions": rows}
    assert "onprem-to-cloud: 2 of 3 partitions: one batch in flight" in _drawn(flow, width=200)
    table = _table([flow | {"desired": "running"}])
    assert "  2 of 3 partitions: one batch in flight" in table


def test_a_flow_that_nobody_reports_says_so():
    table = _table([FLOW | {"desired": "running", "state": "starting", "partitions": []}])
    assert "no worker reports" in table


def test_a_failed_read_keeps_the_last_picture_with_the_reason():
    rounds = iter([[FLOW], Unreachable("cluster cloud does not answer"), KeyboardInterrupt()])

    def flows():
        found = next(rounds)
        if isinstance(found, BaseException):
            raise found
        return found

    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    assert watch_flows("shop", flows, console) == 0
    drawn = console.file.getvalue()
    assert "onprem-to-cloud" in drawn
    assert "not read since" in drawn
    assert "cluster cloud does not answer" in drawn


def test_it_ends_with_ctrl_c():
    def flows():
        raise KeyboardInterrupt

    assert watch_flows("shop", flows, Console(file=io.StringIO())) == 0


@pytest.mark.parametrize(("ms", "told"), [(None, "-"), (0, "0.0 s"), (130_000, "2 m 10 s"), (18_180_000, "5 h 3 m")])
def test_times(ms, told):
    assert render_delay(ms) == told


@pytest.mark.parametrize(("count", "told"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2.5e12, "2.5 TB")])
def test_sizes(count, told):
    assert render_decimal_size(count) == told


def test_lag_and_bars():
    def lag(records: int | None, state: str = "running", *partitions: int | None) -> str:
        is_bound = is_lag_lower_bound(state, {state}, partitions)
        return render_flow_lag({"lag_records": records, "lag_bytes": 3000, "lag_is_lower_bound": is_bound})

    assert lag(None) == "-"
    assert lag(0) == "0 (3.0 kB)"
    assert is_lag_lower_bound("source_expired", {"source_expired", "over_budget"}, [7]), "the others stand still"
    assert not is_lag_lower_bound("running", {"running", "paused"}, [7, 7]), "a worker looks at the paused ones"
    assert lag(1204, "running", 1204, None) == "≥ 1,204 (3.0 kB)"
    assert {lag(0, state, 0) for state in ("paused", "stopped", "over_budget")} == {"≥ 0 (3.0 kB)"}
    assert draw_sparkline([0, 1, 2]) == " ▄█"
    assert draw_sparkline([0, 0]) == "  "


@pytest.mark.parametrize(
    ("asked", "copied", "saved", "told"),
    [
        (None, 100, 0, ""),
        ({"codec": "zstd", "level": 3}, 0, 0, "zstd, level 3; nothing copied since the workers took the partitions"),
        (
            {"codec": "snappy", "level": None},
            5_000_000,
            3_800_000,
            "snappy; 76% fewer bytes since the workers took the partitions (1.2 MB sent of 5.0 MB)",
        ),
    ],
)
def test_what_compression_saves_is_told_in_both_tables(
    asked: dict[str, object] | None, copied: int, saved: int, told: str
) -> None:
    flow = {**FLOW, "compression": asked, "copied_bytes": copied, "saved_bytes": saved}
    for shown in (_drawn(flow), _table([{**flow, "sync": []}])):
        assert (f"compression: {told}" in shown) is bool(told)
        assert ("compression" in shown) is bool(told)


def test_what_copying_adds_is_told_in_both_tables() -> None:
    flow = {**FLOW, "latency": {"p50_ms": 1.4, "p99_ms": 1200.0, "records": 9}}
    for shown in (_drawn(flow), _table([{**flow, "sync": []}])):
        assert "latency that copying adds: p50 1.4 ms, p99 1,200 ms" in shown
        assert "latency" not in _table([{**FLOW, "sync": [], "latency": None}])


TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: team}
clusters:
  a: {bootstrap: ["127.0.0.1:1"], security: {protocol: PLAINTEXT}}
  b: {bootstrap: ["127.0.0.2:1"], security: {protocol: PLAINTEXT}}
flows:
  - {source: a, target: b, topics: {include: [orders]}}
"""


def test_the_latency_of_a_flow_is_that_of_all_workers_that_live(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TOPOLOGY)
    now = int(time.time() * 1000)
    beats = [
        WorkerHeartbeat("w0", 1, now, latencies={"a-to-b": {13: 60}}),
        WorkerHeartbeat("w1", 2, now, latencies={"a-to-b": {13: 38, 40: 2}}),
        WorkerHeartbeat("w2", 3, now - 60_000, latencies={"a-to-b": {70: 900}}),
    ]
    view = {each.key: each.to_json() for each in beats}
    monkeypatch.setattr("watershed.clusters.partition_status_records.read_latest_values", lambda *_: view)
    monkeypatch.setattr("watershed.clusters.flow_records.read_flows", lambda _settings: {})
    monkeypatch.setattr("watershed.clusters.budget_breaches.read_budget_breaches", lambda _settings: {})
    targets = {"b": ConnectionSettings("b", ("127.0.0.2:1",))}
    [row] = _flows(compile_path(path), targets, path)
    assert row["latency"] == {"p50_ms": 0.87, "p99_ms": 94.0, "records": 100}
    view.clear()
    assert [row["latency"] for row in _flows(compile_path(path), targets, path)] == [None], "nothing was copied"


def test_workers_of_several_versions_are_told():
    flow = FLOW | {"sync": [], "versions": ["0.2.0+50d2608a6b3c"]}
    assert "versions" not in _table([flow])
    mixed = flow | {"versions": ["0.2.0+50d2608a6b3c", "unknown"]}
    assert "  workers of several versions: 0.2.0+50d2608a6b3c, unknown\n" in _table([mixed]) + "\n"
