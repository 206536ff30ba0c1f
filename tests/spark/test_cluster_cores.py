"""A master's state as JSON in; limits and sentences out. A real master: sessions/test_spark_standalone_cores.py."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from watershed.spark.cluster_cores import (
    ClusterCores,
    FleetCoreLimit,
    compute_fixed_size,
    compute_fleet_limit,
    compute_fleet_share,
    compute_proof_limit,
    describe_core_wait,
    describe_fixed_size,
    describe_fleet_room,
    has_room,
    parse_master_state,
    read_cluster_cores,
)
from watershed.spark.errors import WrongUse
from watershed.spark.proof_session import build_proof_settings, parse_spark_memory
from watershed.spark.replicate import FleetStateFile, _find_size, read_cores_left

FLEET, BACK, PROOF = "watershed-replicate-shop-cloud", "watershed-replicate-shop-onprem", "watershed-verify-shop"


def state(cores: int, *apps: tuple[str, int], memory: int = 2048, **more: Any) -> bytes:
    """As Spark 4.3 answers: one worker with so many cores, and these applications in the order in which they came."""
    used = sum(held for _, held in apps)
    worker = {"state": "ALIVE", "cores": cores, "coresfree": cores - used, "memoryfree": memory - 512 * used}
    dead = {"state": "DEAD", "cores": 8, "coresfree": 8, "memoryfree": 9999}
    active = [
        {"id": f"app-{number}", "name": name, "cores": held, "starttime": number, "memoryperexecutor": 512}
        for number, (name, held) in enumerate(apps)
    ]
    told = {"url": "spark://spark-master:7077", "status": "ALIVE", "workers": [worker, dead], "activeapps": active}
    return json.dumps(told | more).encode()


def parsed(cores: int, *apps: tuple[str, int], memory: int = 2048) -> ClusterCores:
    found = parse_master_state(state(cores, *apps, memory=memory))
    assert found is not None
    return found


def test_a_full_cluster_is_told_with_who_holds_it_and_what_to_do() -> None:
    cores = parsed(2, (FLEET, 1), (BACK, 1), (PROOF, 0))
    assert describe_core_wait(cores, "app-2") == (
        "waiting for Spark: 0 of 2 cores free at spark://spark-master:7077: watershed-replicate-shop-cloud holds 1, "
        "watershed-replicate-shop-onprem holds 1. It begins as soon as one is free. What to do: give the cluster 3 "
        "cores (`--cores` of its workers; SPARK_CORES in docker-compose.yaml)"
    )
    assert describe_core_wait(cores) == describe_core_wait(cores, "app-2")  # before it has a session


def test_what_to_do_follows_from_who_holds_the_cores() -> None:
    said = describe_core_wait(parsed(8, (FLEET, 3), ("etl\x1b[2J", 4), ("watershed-verify-other", 1)))
    assert "etl\\x1b[2J holds 4, watershed-replicate-shop-cloud holds 3, watershed-verify-other holds 1." in said
    assert said.endswith(
        "; or make a fleet smaller (`topology fleet scale`); or wait until the other proof, or the migration that it "
        "belongs to, has ended; or limit the other applications (their spark.cores.max)"
    )
    many = describe_core_wait(parsed(8, *[(f"etl-{number}", 1) for number in range(8)]))
    assert "3 more hold the rest" in many
    assert len(describe_core_wait(parsed(8, *[(f"{number}" * 4_000, 1) for number in range(8)]))) < 1_000


def test_memory_that_is_missing_and_workers_that_are_missing_are_told_apart_from_cores() -> None:
    full = parsed(3, (FLEET, 1), memory=1024)
    assert not has_room(full, 1024)
    assert has_room(full, 512)
    assert describe_core_wait(full, memory_mb=1024).startswith(
        "waiting for Spark: 2 cores of 3 free at spark://spark-master:7077, but no worker with a free core has 1,024 M"
    )
    none = parse_master_state(state(2, workers=[]))
    assert none is not None
    assert "no worker has registered at spark://spark-master:7077" in describe_core_wait(none)


@pytest.mark.parametrize(
    ("total", "apps", "app_id", "limit"),
    [
        (2, [], "", 1),  # the first fleet, before and after its session has begun
        (2, [(FLEET, 0)], "app-0", 1),
        (2, [(FLEET, 0), (BACK, 0)], "app-0", 1),  # two begin at once: the first takes the core, the second does not
        (2, [(FLEET, 0), (BACK, 0)], "app-1", 0),
        (2, [(FLEET, 1)], "", 0),
        (2, [(FLEET, 1), (BACK, 1)], "app-1", 0),  # and gives back what it should not have got
        (2, [(FLEET, 1), (BACK, 1)], "app-0", 0),
        (3, [(FLEET, 1), (PROOF, 1), (BACK, 0)], "app-2", 1),  # a proof's core counts as left to proofs
        (8, [(FLEET, 2), ("etl", 4), (BACK, 0)], "app-2", 5),  # others' do not bind us, they only have to be waited for
        (1, [], "", 0),
    ],
)
def test_fleets_leave_one_core(total: int, apps: list[tuple[str, int]], app_id: str, limit: int) -> None:
    assert compute_fleet_limit(parsed(total, *apps), app_id) == limit
    assert compute_fleet_limit(parsed(total, *apps), app_id, left=0) in (limit + 1, total)


@pytest.mark.parametrize("total", [2, 3, 4, 8])
def test_fleets_that_want_all_come_to_rest_and_leave_one_core(total: int) -> None:
    """However many cores two of them began with. A round: both see the same state, take what they may, or give back."""
    for held in itertools.product(range(total + 1), repeat=2):
        if sum(held) > total:
            continue
        states = [list(held)]
        for _ in range(6):
            cores = parsed(total, *zip((FLEET, BACK), states[-1], strict=True))
            now = list(states[-1])
            for fleet, has in enumerate(states[-1]):
                app = f"app-{fleet}"
                takes = min(max(compute_fleet_limit(cores, app) - has, 0), total - sum(now))
                gives = max(has - max(compute_fleet_share(cores, app), 1), 0)
                now[fleet] += takes - gives
            states.append(now)
        assert states[-1] == states[-2], (held, states)
        assert sum(states[-1]) <= max(total - 1, 2), states  # nobody gives its last one


def test_who_came_later_gives_back_first() -> None:
    both = parsed(4, (FLEET, 2), (BACK, 2))
    assert [compute_fleet_share(both, f"app-{number}") for number in range(2)] == [2, 1]
    assert [compute_fleet_share(parsed(4, (FLEET, 3), (BACK, 0)), f"app-{number}") for number in range(2)] == [3, 0]
    assert compute_fleet_share(both, "app-9") == 3  # the master has forgotten it


@pytest.mark.parametrize(
    ("total", "apps", "limit"),
    [(2, [], 1), (2, [(FLEET, 1)], 1), (2, [(FLEET, 1), (BACK, 1)], 1), (8, [(FLEET, 2)], 5), (4, [(PROOF, 3)], 3)],
)
def test_a_proof_leaves_one_core_and_takes_at_least_one(total: int, apps: list[tuple[str, int]], limit: int) -> None:
    assert compute_proof_limit(parsed(total, *apps)) == limit


def test_a_fleet_says_what_it_waits_for_and_what_runs_elsewhere() -> None:
    cores = parsed(2, (FLEET, 1))
    assert describe_fleet_room(cores, 0, 0, 1) == ""
    assert describe_fleet_room(cores, 3, 0, 1) == (
        "3 workers wait for cores: fleets hold 1 of 2 cores, and leave 1 to proofs (spark.watershed.cores.left). What "
        "to do: give the cluster 5 cores (`--cores` of its workers; SPARK_CORES in docker-compose.yaml); or scale the "
        "fleet down"
    )
    assert "fleets hold 1 of 4 cores (others: 3), and leave 1 to" in describe_fleet_room(
        parsed(4, (FLEET, 1), ("etl", 2), (PROOF, 1)), 1, 0, 1
    )
    assert describe_fleet_room(cores, 1, 1, 1).startswith(
        "1 worker runs beside the Spark driver and 1 worker waits for a core: fleets hold 1 of 2 cores"
    )


@pytest.mark.parametrize(
    "payload",
    [b"", b"<html>", b"[]", b"{}", state(2, status="STANDBY"), state(2, status="RECOVERING"), state(2, workers=[{}])]
    + [state(2, activeapps=wrong) for wrong in ([[]], ["app"], [{}], 1)],
)
def test_what_is_no_answer_of_a_master_that_works_says_nothing(payload: bytes) -> None:
    assert parse_master_state(payload) is None


@contextmanager
def page(answer: bytes, status: int = 200) -> Iterator[int]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/json/" else 404)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_masters_page_is_asked_where_it_is_said_to_be() -> None:
    with page(state(2, (FLEET, 1))) as port:
        told = {"WATERSHED_SPARK_PAGE": f"http://127.0.0.1:{port}/"}
        found = read_cluster_cores("spark://spark-master:7077", told)
        assert found is not None
        assert (found.total, found.free, [each.name for each in found.applications]) == (2, 1, [FLEET])
        assert read_cluster_cores("yarn", told) is None
        assert read_cluster_cores("local[2]", told) is None
    assert read_cluster_cores("spark://spark-master:7077", told) is None  # it does not answer any more
    with page(state(2), status=403) as port:
        assert read_cluster_cores("spark://m:7077", {"WATERSHED_SPARK_PAGE": f"http://127.0.0.1:{port}"}) is None
    with pytest.raises(WrongUse, match=r"WATERSHED_SPARK_PAGE=file:///etc/passwd: expected http://HOST:PORT"):
        read_cluster_cores("spark://m:7077", {"WATERSHED_SPARK_PAGE": "file:///etc/passwd"})
    for wrong in ("http://m:port", "http://m:99999", "http://[::1", "http://:8080"):
        with pytest.raises(WrongUse, match=r"expected http://HOST:PORT"):
            read_cluster_cores("spark://m:7077", {"WATERSHED_SPARK_PAGE": wrong})


def test_another_masters_page_on_the_usual_port_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with page(state(2)) as port:
        monkeypatch.setattr("watershed.spark.cluster_cores._PAGE_PORT", port)
        assert read_cluster_cores("spark://127.0.0.1:7077", {}) is not None
        assert read_cluster_cores("spark://127.0.0.1:7078", {}) is None


def test_a_proof_says_before_its_session_that_nothing_is_free(tmp_path: Any) -> None:
    said: list[str] = []
    environ = {"WATERSHED_SPARK_MASTER": "spark://spark-master:7077"}
    assert build_proof_settings(said.append, {"WATERSHED_SPARK_MASTER": "local[2]"}) == {}
    with page(state(2, (FLEET, 1), (BACK, 1))) as port:
        environ["WATERSHED_SPARK_PAGE"] = f"http://127.0.0.1:{port}"
        assert build_proof_settings(said.append, environ) == {"spark.cores.max": "1"}
    assert said[0].startswith("waiting for Spark: 0 of 2 cores free")
    with page(state(4, (FLEET, 1), memory=1024)) as port:
        environ["WATERSHED_SPARK_PAGE"] = f"http://127.0.0.1:{port}"
        assert build_proof_settings(said.append, environ) == {"spark.cores.max": "2"}
        assert "has 1,024 MiB of memory left" in said[1]  # Spark's own spark.executor.memory
        (tmp_path / "conf").write_text("spark.executor.memory 512m\n", encoding="utf-8")
        environ["WATERSHED_SPARK_CONF"] = str(tmp_path / "conf")
        assert build_proof_settings(said.append, environ) == {"spark.cores.max": "2"}
    assert len(said) == 2


def test_sizes_and_settings_are_read_as_spark_reads_them() -> None:
    sizes = {"512m": 512, "2g": 2048, "1024": 1024, "1gb": 1024, "": 1024, "much": 1024}
    assert {text: parse_spark_memory(text) for text in sizes} == sizes
    assert read_cores_left({}) is None
    assert read_cores_left({"spark.watershed.cores.left": "0"}) == 0
    with pytest.raises(WrongUse, match=r"spark\.watershed\.cores\.left two: expected a number of cores"):
        read_cores_left({"spark.watershed.cores.left": "two"})


def test_a_limit_keeps_what_was_known_while_the_master_is_away() -> None:
    answers = [None, parsed(4, (FLEET, 0)), None]
    limit = FleetCoreLimit(lambda: answers.pop(0), "app-0", every_s=0.0)
    assert [limit.find() for _ in range(3)] == [None, 3, 3]


@pytest.mark.parametrize(
    ("total", "apps", "workers", "left", "size"),
    [
        (1, [], 4, None, 1),  # the cluster of docs/engines.md: it copies
        (1, [(FLEET, 1)], 4, None, 0),
        (1, [], 4, 1, 0),  # who says so means it
        (2, [], 4, None, 1),
        (2, [], 4, 0, 2),
        (2, [], 1, None, 1),
        (8, [(FLEET, 2), ("etl", 4)], 4, None, 4),
    ],
)
def test_a_fleet_that_is_started_by_hand_has_as_many_workers_as_can_begin(
    total: int, apps: list[tuple[str, int]], workers: int, left: int | None, size: int
) -> None:
    assert compute_fixed_size(parsed(total, *apps), workers, left) == size


def test_what_is_missing_of_a_fleet_that_is_started_by_hand_stands_in_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watershed.spark.replicate._GONE_S", -1.0)
    monkeypatch.delenv("WATERSHED_SPARK_CONF", raising=False)
    known = parsed(2)
    monkeypatch.setattr("watershed.spark.replicate.read_cluster_cores", lambda _master: known)
    state = FleetStateFile(tmp_path / "state.json", {"state": "starting"})
    assert _find_size("spark://m:7077", 2, None, state, threading.Event()) == 1
    state.report_present(1, [{"id": "w0"}], 0)
    told = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert told["state"] == "running"
    assert told["reason"] == describe_fixed_size(known, 2, 1, None)
    assert told["reason"] == (
        "1 of 2 workers can begin: fleets hold 0 of 2 cores, and leave 1 to proofs (spark.watershed.cores.left). What "
        "to do: give the cluster 3 cores (`--cores` of its workers; SPARK_CORES in docker-compose.yaml), or set a "
        "smaller spark.watershed.cores.left in the file of WATERSHED_SPARK_CONF, and start it again"
    )
    known = parsed(2, (FLEET, 1))
    with pytest.raises(WrongUse, match=r"0 of 2 workers can begin: fleets hold 1 of 2 cores"):
        _find_size("spark://m:7077", 2, None, state, threading.Event())


def test_a_driver_before_that_the_master_still_counts_limits_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [parsed(2, (FLEET, 1)), parsed(2)]
    monkeypatch.delenv("WATERSHED_SPARK_CONF", raising=False)
    monkeypatch.setattr("watershed.spark.replicate.read_cluster_cores", lambda _master: looks.pop(0))
    state = FleetStateFile(tmp_path / "state.json", {"state": "starting"})
    assert _find_size("spark://m:7077", 1, None, state, threading.Event()) == 1
    assert state.lacks == ""
    assert _find_size("spark://m:7077", 4, 7, state, threading.Event()) == 4  # a supervised one is resized
