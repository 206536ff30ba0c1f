"""What a demonstration does with Airflow and the applications, wherever those run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import click

from watershed.lab import sample_applications
from watershed.lab.airflow_client import AirflowClient, ApprovalQuestion
from watershed.lab.demo.dag_run_follower import follow_dag_run
from watershed.lab.demo.demo_setup import DEMO_NAME
from watershed.lab.sample_applications import SampleApplication

REPLICATE, MIGRATE = (f"{verb}__{DEMO_NAME}" for verb in ("replicate", "migrate"))
RUN_ON_AT_TARGET_S = 5.0  # how long applications go on at the target before they are stopped and counted
DRAIN_S = 60.0


def start_clock() -> Callable[[str], None]:
    """A function that prints a line behind the seconds since now."""
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}")

    return say


def run_dag(
    client: AirflowClient,
    dag: str,
    conf: dict[str, object],
    say: Callable[[str], None],
    answer: Callable[[ApprovalQuestion], str | None] = lambda _question: None,
) -> str:
    """Triggers the DAG and follows it to its end. Returns the run's final state."""
    client.unpause(dag)
    client.trigger(dag, "demo", conf)
    state = follow_dag_run(client, dag, "demo", say, answer=answer)
    say(f"{dag}: {state}")
    return state


def build_answers(
    find_applications: Callable[[], Mapping[str, SampleApplication]], find_bootstrap: Callable[[str], str]
) -> Callable[[ApprovalQuestion], str | None]:
    """Approves, and does what a person is asked to do, before it is confirmed."""

    def answer(question: ApprovalQuestion) -> str | None:
        verb, _, rest = question.subject.partition(" ")
        name, _, alias = rest.partition(" at ")
        app = find_applications().get(name)
        if app is None:
            return "Approve"
        if verb == "Stop":
            sample_applications.stop_client(app)
        else:
            sample_applications.start_client(app, alias, find_bootstrap(alias))
        return "Done"

    return answer


def settle_applications(running: Mapping[str, SampleApplication], say: Callable[[str], None]) -> None:
    """Stop the producers, let the consumer group read to the end, stop it too."""
    for name in ("checkout", "payments"):
        if name in running:
            sample_applications.stop_client(running[name])
    billing = running.get("billing")
    if billing is None:
        return
    deadline, last, still = time.monotonic() + DRAIN_S, -1, 0
    while time.monotonic() < deadline and still < 4:
        count = sample_applications.ask_application(billing)["processed"]
        still, last = (still + 1 if count == last else 0), count
        time.sleep(0.5)
    sample_applications.stop_client(billing)
    say(f"applications stopped; billing processed {last:,} records")
