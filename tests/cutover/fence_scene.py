"""A wave of one producer and one topic on real brokers, driven through its fence; nothing is copied, for nothing is
written before the fence but what a test writes."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.cutover.drivers import build_driver
from tests.replicator.real import applied, plan_for
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import Action
from watershed.cutover.driver import RunDriver, RunEvent
from watershed.cutover.journal.topology_journal import open_journal
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.person_application import PersonAnswer
from watershed.cutover.observations import Observation, ProofOutcome
from watershed.cutover.policy import WavePolicy
from watershed.cutover.run_plan import plan_migration
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import Wave, WaveFence
from watershed.topology.plan import Plan, seal_plan

POLICY = WavePolicy(
    strategy="fenced", poll_ms=100, hold_ms=0, hold_times=1, watch_ms=700, settle_ms=1_000,
)  # fmt: skip
CHECKOUT = "checkout"


class Died(BaseException):
    """The driver's process is gone."""


@dataclass
class Scene:
    """`at` is called with every event of the driver; `died` with every action, before and after the world does it."""

    settings: Mapping[str, ConnectionSettings]
    plan: Plan
    policy: WavePolicy
    at: Callable[[RunEvent], None] = lambda _event: None
    died: Callable[[Action, bool], bool] = lambda _action, _done: False

    def migration(self, **changes: Any) -> RunDriver:
        course = plan_migration(self.plan, policy=self.policy)
        applications = DeclaredApplications(ask=lambda _request: PersonAnswer("done", "a test"))
        live = LiveActionHandler(self.plan, course.flow, self.settings, applications, time.monotonic)
        arguments: dict[str, Any] = {
            "run_plan": course,
            "prove": lambda _wanted: ProofOutcome(0, "proven", 0, {"proven": 0}),
            "handler": _Mortal(live, self),
            "journal": open_journal(self.plan, self.settings[course.journal], secrets.token_hex(8)),
            "say": lambda event: self.at(event),
            "run_id": "r1",
        }
        return build_driver(self.plan, **(arguments | changes))


@dataclass
class _Mortal:
    live: LiveActionHandler
    scene: Scene

    def answer(self, action: Action) -> Observation:
        if self.scene.died(action, False):
            raise Died
        seen = self.live.answer(action)
        if self.scene.died(action, True):
            raise Died
        return seen


def a_scene(
    settings: Mapping[str, ConnectionSettings],
    name: str,
    fence: WaveFence,
    application: PlanApplication,
    **policy: Any,
) -> Scene:
    """The topic is there on both sides, the flow is applied, and no worker serves it."""
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(name, 1, 1)
    base = plan_for(settings, name, name)
    wave = Wave("all", (name,), (), (CHECKOUT,), strategy="fenced", fence=fence)
    migration = PlanMigration(base.flows[0].id, "fenced", (wave,), {CHECKOUT: application})
    plan = applied(settings, seal_plan(replace(base, migration=migration)))
    return Scene(settings, plan, replace(POLICY, fence=fence, **policy))


def writes(settings: ConnectionSettings, topic: str, **config: Any) -> None:
    """One record, acknowledged."""
    producer = Producer(settings.librdkafka(config))
    errors: list[object] = []
    producer.produce(topic, b"one", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None], errors


class Stubborn:
    """A producer that nobody can stop: writes on and on until the test is over. acked, refused: counts."""

    def __init__(self, settings: ConnectionSettings, topic: str, **config: Any) -> None:
        self.acked, self.refused = 0, 0
        self._producer = Producer(settings.librdkafka({"linger.ms": 0} | config))
        self._topic, self._over = topic, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Stubborn:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            try:
                self._producer.produce(self._topic, b"still here", on_delivery=self._delivered)
            except KafkaException:  # librdkafka keeps the topic's refusal in mind for a while
                self.refused += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acked += 1
        else:
            self.refused += 1
