"""How long nobody can write while applications move, and what is lost: each strategy, and what people do by hand.

Two clusters, 100 partitions, two live producers (one writes transactions, some aborted) and a consumer group. Each
strategy runs as `topology migrate` does, Spark's proofs included, on topics and applications of its own; the source is
watched for half a second, because these clients follow at once (in earnest: longer than the clients' metadata age).

by hand: stop the producers, see the flow's lag at 0 and the group's the same twice, a second apart (it stays above 0
where a log ends in a transaction's marker or in aborted records), stop the consumers, commit the ends of the target's
logs for their group, start everything there. No fence, no barrier, no proof.

in Airflow: the same move by the DAG `migrate__NAME`, in turn with moves by the command, on the same clusters and while
the same Airflow runs: `by command` and `in Airflow` are to be compared with each other only. Nobody is asked.

Seconds without writes are each producer's own: its last acknowledged record at the source to its first at the target.
Environment:

    BENCH_PARTITIONS   partitions in all (default 100, over ten topics)
    BENCH_CASES        comma-separated, of fenced, producers_first, consumers_first, by hand, in Airflow (default: all)
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from watershed.bench.bench_clusters import BenchClusters, run_bench_clusters
from watershed.bench.goals import build_cutover_goals
from watershed.bench.results import choose_size, publish_results, report_progress
from watershed.bench.shop_applications import ShopApplications, run_shop, wait_until_done
from watershed.cli.proof_process import ProofProcess
from watershed.clusters.admin import Admin
from watershed.cutover.driver import RunEvent
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import plan_migration
from watershed.lab import airflow, sample_applications
from watershed.lab.airflow_client import AirflowClient
from watershed.lab.demo.dag_run_follower import follow_dag_run, read_failure_logs

_TOPICS = choose_size(10, 2)
_RATE = choose_size(500, 10)  # records a second of each producer
_WATCH = "500ms"
_BY_HAND, _BY_COMMAND, _IN_AIRFLOW = "by hand", "by command", "in Airflow"
_CASES = choose_size(("fenced", "producers_first", "consumers_first", _BY_HAND, _IN_AIRFLOW), ("fenced", _BY_HAND))
_ROUNDS = choose_size(2, 1)  # of the command and of Airflow


def main() -> int:
    """Moves the applications with each strategy, and once by hand. Returns the exit code."""
    os.environ.setdefault("WATERSHED_HOOK_HOSTS", "loopback")  # where the shop's applications listen
    partitions = int(os.environ.get("BENCH_PARTITIONS", choose_size("100", "2")))
    cases = [each.strip() for each in os.environ.get("BENCH_CASES", ",".join(_CASES)).split(",")]
    rows: list[dict[str, Any]] = []
    seconds: dict[str, dict[str, float]] = {}
    for number, case in enumerate(cases):
        if case == _IN_AIRFLOW:
            rows += _compare_with_airflow(partitions)
            continue
        strategy = "fenced" if case == _BY_HAND else case
        with ExitStack() as stack:  # clusters of its own: none finds what another left
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
            place = stack.enter_context(run_bench_clusters(scratch))
            size = _TOPICS, max(1, partitions // _TOPICS)
            found = stack.enter_context(run_shop(place, f"s{number}", strategy, _WATCH, *size, _RATE))
            report_progress(f"{case}: {partitions} partitions are copied, applications write and read")
            steps = _move_by_hand(found, place) if case == _BY_HAND else _run_migration(found, place)
            seconds[case] = {name: round(each, 2) for name, each in steps.items()}
            rows.append(_row(case, partitions, found))
            report_progress(f"{rows[-1]}\n{_steps(steps)}")
    return publish_results("cutover", rows, build_cutover_goals(rows), {"seconds_by_step": seconds})


def _compare_with_airflow(partitions: int) -> Iterator[dict[str, Any]]:
    """A row for each move, by the command and in Airflow in turn."""
    size = _TOPICS, max(1, partitions // _TOPICS)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        place = stack.enter_context(run_bench_clusters(scratch))
        (topologies := scratch / "topologies").mkdir()
        stack.callback(airflow.stop_airflow, scratch / "airflow")
        parsed_again = {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5"}  # seconds; files come one by one
        running = airflow.start_airflow(
            scratch / "airflow", topologies=topologies, state=scratch / "state", settings=parsed_again
        )
        client = AirflowClient(running.url)
        for number, case in enumerate((_BY_COMMAND, _IN_AIRFLOW) * _ROUNDS):
            with run_shop(place, f"a{number}", "fenced", _WATCH, *size, _RATE) as found:
                report_progress(f"{case}: {partitions} partitions are copied, applications write and read")
                if case == _BY_COMMAND:
                    _run_migration(found, place)
                else:
                    _run_in_airflow(found, client, topologies)
                yield _row(case, partitions, found)


def _run_in_airflow(found: ShopApplications, client: AirflowClient, topologies: Path) -> None:
    """By the DAG `migrate__NAME`. Raises RuntimeError with the logs of its tasks."""
    shutil.copy(found.path, topologies)
    dag = f"migrate__{found.name}"
    client.wait_for_dag(dag)
    client.unpause(dag)
    client.trigger(dag, "bench", {"approval": "auto"})
    if (state := follow_dag_run(client, dag, "bench", report_progress)) != "success":
        raise RuntimeError("\n".join([f"{dag} ended {state}", *read_failure_logs(client, dag, "bench")]))


def _run_migration(found: ShopApplications, place: BenchClusters) -> dict[str, float]:
    """As `topology migrate --approve auto` does. Seconds by step."""
    steps: dict[str, float] = {}
    began: dict[str, int] = {}
    plan, folder = found.plan, place.directory / f"{found.name}-evidence"

    def say(event: RunEvent) -> None:
        if event.kind == "begin":
            began[event.step] = event.at_ms
        elif event.kind in ("done", "refused"):
            steps[event.step] = (event.at_ms - began[event.step]) / 1000

    with ProofProcess(found.path, plan.hash) as proofs:
        result = open_run(
            plan,
            plan_migration(plan),
            {"source": place.source, "target": place.target},
            prove=lambda wanted: proofs.prove(folder / ("tail" if wanted.final else "history"), wanted),
            say=say,
            evidence=folder,
        ).run()
    if result.state != "done":
        raise RuntimeError(f"the migration ended {result.state} at {result.step}: {result.reason}")
    return steps


def _move_by_hand(found: ShopApplications, place: BenchClusters) -> dict[str, float]:
    steps: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        began = time.monotonic()
        work()
        steps[name] = time.monotonic() - began

    seen = [-1]

    def lag_is_zero() -> bool:
        behind, unread = found.behind(), found.unread(place.source)
        seen.append(behind + unread)
        return seen[-1] == seen[-2] and behind == 0

    def commit() -> None:
        with Admin(place.target) as admin:
            ends = admin.offsets(found.partitions(place.target), "read_committed")
            admin.commit_offsets(found.consumer.name, {each: span.end for each, span in ends.items()})

    there = ",".join(place.target.bootstrap)
    timed("stop producers", lambda: [sample_applications.stop_client(app) for app in found.producers])
    timed("lag 0 twice", lambda: wait_until_done(lag_is_zero, every=1.0))
    timed("stop consumers", lambda: sample_applications.stop_client(found.consumer))
    timed("commit ends", commit)
    timed("start consumers", lambda: sample_applications.start_client(found.consumer, "target", there))
    timed(
        "start producers",
        lambda: [sample_applications.start_client(app, "target", there) for app in found.producers],
    )
    return steps


def _row(case: str, partitions: int, found: ShopApplications) -> dict[str, Any]:
    for app in found.producers:
        sample_applications.wait_for_count(app, "acked", sample_applications.ask_application(app)["acked"] + _RATE)
    seen = found.settled()
    (group,) = seen.groups
    return {
        "case": case,
        "partitions": partitions,
        "without_writes_s": round(seen.max_seconds_without_writes, 2),
        "lost": group.lost,
        "reread": group.repeated,
        "out_of_order": group.out_of_order_per_key,
        "records": group.acked,
    }


def _steps(steps: dict[str, float]) -> str:
    return "\n".join(f"  {seconds:7.2f} s  {name}" for name, seconds in steps.items())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clusters and applications end, too
    raise SystemExit(main())
