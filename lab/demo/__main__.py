"""`python -m watershed.lab.demo run|up|down`."""

from __future__ import annotations

import argparse
import fcntl
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from watershed.lab import airflow, sample_applications
from watershed.lab.airflow import AirflowFailed
from watershed.lab.airflow_client import AirflowClient, AirflowRequestFailed
from watershed.lab.clusters import Lab
from watershed.lab.demo import demo_setup as stages
from watershed.lab.demo.dag_run_follower import read_failure_logs
from watershed.lab.demo.demo_result import build_demo_result, render_demo_result
from watershed.lab.demo.demo_setup import DEMO_NAME, DEMO_SOURCE, DEMO_TARGET, DemoFolders
from watershed.lab.demo.demo_steps import (
    MIGRATE,
    REPLICATE,
    RUN_ON_AT_TARGET_S,
    build_answers,
    run_dag,
    settle_applications,
    start_clock,
)
from watershed.lab.demo.worker_fault import WorkerFault
from watershed.lab.errors import LabError
from watershed.lab.releases import DEFAULT_RELEASE, RELEASES

VERIFY = f"verify__{DEMO_NAME}"


def main() -> int:
    """Runs the demonstration, leaves it running (`up`) or ends it (`down`). Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m watershed.lab.demo", description=__doc__)
    parser.add_argument("verb", choices=["run", "up", "down"])
    parser.add_argument("--dir", type=Path, default=Path(".watershed/demo"))
    parser.add_argument("--fault", choices=["worker", ""], default="", help="kill -9 a worker in mid-copy")
    parser.add_argument("--records", type=int, default=2_000_000, help="written before anything moves")
    parser.add_argument("--source", default=DEFAULT_RELEASE, help=f"the source's Kafka: {', '.join(RELEASES)}")
    options = parser.parse_args()
    stage = DemoFolders(options.dir.resolve())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    try:
        with _alone(stage):
            if options.verb == "down":
                stages.end_demo(stage)
                _kept(stage).unlink(missing_ok=True)
                click.echo("ended: clusters, applications, workers, Airflow")
                return 0
            if _kept(stage).exists():
                click.echo(f"error: `make up` is in effect in {stage.directory}; end it first: make down", err=True)
                return 2
            if options.verb == "up":
                return _keep(stage, options.records, options.source)
            return _run(stage, options.records, options.fault == "worker", options.source)
    except (LabError, AirflowFailed, AirflowRequestFailed) as problem:
        click.echo(f"error: {problem}", err=True)
        return 2
    except KeyboardInterrupt:
        click.echo("interrupted: everything that was started has ended", err=True)
        return 130


def _run(stage: DemoFolders, records: int, fault: bool, source: str) -> int:
    say = start_clock()
    began = time.monotonic()
    with _ended(stage, say):
        lab, client = _begin(stage, say, records, fault, source, stages.EVERY_WAY)
        states = {REPLICATE: "success"}
        here = partial(sample_applications.list_applications, stage.applications)
        say(f"{MIGRATE} is triggered; applications go on writing and reading")
        states[MIGRATE] = run_dag(
            client,
            MIGRATE,
            {"approval": "manual"},
            say,
            build_answers(here, lambda alias: lab.cluster(alias).bootstrap),
        )
        if states[MIGRATE] == "success":
            time.sleep(RUN_ON_AT_TARGET_S)
        settle_applications({name: app for name, app in here().items() if app.pid}, say)
        run = stage.state / "runs" / MIGRATE / "demo"
        result = build_demo_result(stage, states, run, time.monotonic() - began)
        click.echo("\n" + render_demo_result(result) + "\n")
        if states[MIGRATE] != "success":
            click.echo("\n".join(read_failure_logs(client, MIGRATE, "demo")), err=True)
    click.echo("proven: nothing lost, nothing repeated" if result.good else "NOT proven; see above")
    return 0 if result.good else 1


def _keep(stage: DemoFolders, records: int, source: str) -> int:
    say = start_clock()
    try:
        lab, client = _begin(stage, say, records, fault=False, source=source)
        for dag in (MIGRATE, VERIFY, *(f"{verb}__{DEMO_NAME}" for verb in stages.list_declared_runs(source))):
            client.wait_for_dag(dag)
            client.unpause(dag)
    except BaseException:
        with _ended(stage, say):
            raise
    _kept(stage).touch()
    click.echo(_welcome(stage, lab, client.url))
    return 0


def _begin(
    stage: DemoFolders,
    say: Callable[[str], None],
    records: int,
    fault: bool,
    source: str,
    ways: Mapping[str, str] = stages.BY_HTTP,
) -> tuple[Lab, AirflowClient]:
    """Everything up to running flows; things that do not need each other start together."""
    stages.end_demo(stage)
    stages.clear_demo_folders(stage)
    with ThreadPoolExecutor() as pool:
        stages.write_host_settings(stage)
        allowed = {"WATERSHED_COMMANDS": str(stage.commands)}
        web = pool.submit(
            airflow.launch_airflow, stage.airflow, topologies=stage.topologies, state=stage.state, settings=allowed
        )
        lab = stages.start_demo_clusters(stage, source)
        ports = stages.write_demo_topology(stage, lab, ways)
        say(", ".join(f"{c.alias} (Kafka {c.brokers[0].kafka}) at {c.bootstrap}" for c in lab.clusters.values()))
        stages.start_demo_applications(stage, lab, ports)
        say(f"producers and consumers run at {DEMO_SOURCE}: {', '.join(stages.DEMO_APPLICATIONS)}")
        stages.preload_demo_topics(stage, lab.cluster(DEMO_SOURCE).bootstrap, records)
        say(
            f"{records:,} records preloaded into {len(stages.DEMO_TOPICS)} topics of {stages.DEMO_PARTITIONS} "
            f"partitions"
        )
        running = airflow.wait_until_healthy(web.result())
    client = AirflowClient(running.url)
    for dag in (REPLICATE, MIGRATE, VERIFY):
        client.wait_for_dag(dag)
    say(f"Airflow at {running.url} (admin/admin)")
    killer = WorkerFault(DEMO_TARGET, lab.cluster(DEMO_TARGET).bootstrap, say) if fault else None
    if killer:
        killer.start()
    say(f"{REPLICATE} is triggered")
    try:
        if run_dag(client, REPLICATE, {"approval": "auto"}, say) != "success":
            raise LabError("\n".join([f"{REPLICATE} failed", *read_failure_logs(client, REPLICATE, "demo")]))
        if killer:
            killer.join(60)
            if not killer.done:
                raise LabError("the fault found no worker that was copying")
    finally:
        if killer:
            killer.stop()
    return lab, client


@contextmanager
def _ended(stage: DemoFolders, say: Callable[[str], None]) -> Iterator[None]:
    """Whatever happens inside, everything below the directory ends; a second Ctrl-C cannot prevent it."""
    try:
        yield
    finally:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        say("ending clusters, applications, workers, Airflow")
        stages.end_demo(stage)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _alone(stage: DemoFolders) -> Iterator[None]:
    """One command at a time in a directory."""
    stage.directory.parent.mkdir(parents=True, exist_ok=True)
    lock = stage.directory.with_suffix(".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LabError(f"another demonstration runs in {stage.directory}") from None
    with lock:
        yield


def _kept(stage: DemoFolders) -> Path:
    return stage.directory / "kept"


def _welcome(stage: DemoFolders, lab: Lab, url: str) -> str:
    clusters = "\n".join(f"  {c.alias:10} {c.bootstrap}" for c in lab.clusters.values())
    running = "\n".join(
        f"  {name:10} {app.http}" for name, app in sample_applications.list_applications(stage.applications).items()
    )
    path = stage.topology.relative_to(Path.cwd()) if stage.topology.is_relative_to(Path.cwd()) else stage.topology
    file, programs = shlex.quote(str(path)), shlex.quote(str(Path(sys.executable).parent))
    source = lab.cluster(DEMO_SOURCE).brokers[0].kafka
    back = f"topology rollback {file}" if stages.can_be_target(source) else f"(no way back to Kafka {source})"
    return f"""
clusters
{clusters}
applications (GET tells what each does)
{running}
Airflow: {url}  log in as admin, as ops (starts runs and answers) or as view (only looks); the password is the name
  look:     {url}/plugin/replication/replication/
  migrate:  {url}/dags/{MIGRATE}  press Trigger; approve under Browse, Required Actions
  proof:    {url}/dags/{VERIFY}
on the command line (export PATH={programs}:"$PATH" WATERSHED_HOOK_HOSTS=loopback)
  topology status {file}
  topology migrate {file} --dry-run
  {back}
step by step: docs/tutorial.md
end everything: make down"""


if __name__ == "__main__":
    raise SystemExit(main())
