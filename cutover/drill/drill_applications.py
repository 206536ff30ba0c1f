"""The rehearsal's applications: stopped and started as the real ones are (`cutover.live.application_control`), in this
process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.drill.drill_consumer import DrillConsumer
from watershed.cutover.drill.drill_producer import DrillProducer, KeysByTopic
from watershed.cutover.drill.record_tally import RecordTally
from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
)

_JOIN_S = 60.0  # for a consumer to get partitions, for a thread to end
_SETTLE_S = 120.0  # for consumers to read what is left
Topics = Mapping[str, Mapping[str, str]]  # by alias of a cluster: topic of the wave → what it is called there


@dataclass(frozen=True, slots=True)
class _RunningClient:
    """A client and its thread."""

    client: DrillConsumer | DrillProducer
    thread: threading.Thread


class DrillApplications:
    """groups, producers: of the rehearsal. Every group reads all topics; producers share them. Not thread-safe."""

    def __init__(
        self,
        groups: Sequence[str],
        producers: Sequence[str],
        topics: Topics,
        settings: Mapping[str, ConnectionSettings],
        tally: RecordTally,
    ) -> None:
        self.groups, self.producers = tuple(groups), tuple(producers)
        self.tally = tally
        self._topics, self._settings = topics, settings
        self._keys: KeysByTopic = {}
        self._numbers: dict[str, itertools.count[int]] = {name: itertools.count(1) for name in producers}
        self._running: dict[str, list[_RunningClient]] = {}  # one that reads and writes, too, is two clients

    def begin(self, alias: str, keys: KeysByTopic) -> None:
        """Consumers at the beginning of the copies, then producers, all at that cluster. Raises ApplicationFailed."""
        self._keys = keys
        for group in self.groups:
            self._run(group, self._reading(group, alias, begins=True))
        for group in self.groups:
            self._joined(group)
        for name in self.producers:
            self._run(name, self._writing(name, alias))

    def look(self, name: str) -> ApplicationState:
        """State of a client of the drill. Raises ApplicationControlFailed when it ended with an error."""
        found = self._running.get(name, [])
        self._check(name)
        return ApplicationState("running" if found else "stopped", found[0].client.settings.alias if found else None,
                                "endpoint")  # fmt: skip

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Ends the client, or starts it: an application that reads and writes starts both, as a real one does. Raises
        ApplicationControlFailed when it had failed before."""
        if order.verb == "stop":
            return self._stop(order.name)
        if not self._running.get(order.name):
            if order.name in self.groups:
                self._run(order.name, self._reading(order.name, order.alias, begins=False))
            if order.name in self.producers:
                self._run(order.name, self._writing(order.name, order.alias))
        return self.look(order.name)

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """As `look`: orders are done at once."""
        return self.look(order.name)

    def _stop(self, name: str) -> ApplicationState:
        found = self._running.get(name, [])
        self._end(found)
        self._check(name)
        self._running.pop(name, None)
        return self.look(name)

    def settle(self, until: Callable[[], float] = time.monotonic) -> None:
        """Producers stop, consumers read what there is, and stop. Raises ApplicationFailed."""
        for name in self.producers:
            if name not in self.groups:
                self._stop(name)
            else:
                self._end([each for each in self._running.get(name, []) if isinstance(each.client, DrillProducer)])
        deadline = until() + _SETTLE_S
        while self.tally.behind(self.groups) and until() < deadline:
            for group in self.groups:
                self._check(group)
            time.sleep(0.1)
        for group in self.groups:
            self._stop(group)

    def end(self) -> None:
        """Whatever runs ends; what had failed is not told again."""
        for found in self._running.values():
            for each in found:
                each.client.stopping.set()
        for found in self._running.values():
            for each in found:
                each.thread.join(_JOIN_S)
        self._running.clear()

    def _reading(self, group: str, alias: str, *, begins: bool) -> DrillConsumer:
        called = {there: topic for topic, there in self._topics[alias].items()}
        return DrillConsumer(group, self._settings[alias], called, self.tally, begins, threading.Event())

    def _writing(self, name: str, alias: str) -> DrillProducer:
        """Each topic has a producer, and each producer a topic."""
        every, at = sorted(self._topics[alias]), self.producers.index(name)
        own = every[at :: len(self.producers)] or [every[at % len(every)]]
        topics = {topic: self._topics[alias][topic] for topic in own}
        return DrillProducer(
            name, self._settings[alias], topics, self._keys, self._numbers[name], self.tally, threading.Event()
        )

    def _run(self, name: str, client: DrillConsumer | DrillProducer) -> None:
        thread = threading.Thread(target=client.run, name=name, daemon=True)
        self._running.setdefault(name, []).append(_RunningClient(client, thread))
        thread.start()

    def _joined(self, group: str) -> None:
        deadline = time.monotonic() + _JOIN_S
        for each in self._running[group]:
            client = each.client
            while isinstance(client, DrillConsumer) and not client.joined.wait(0.1):
                self._check(group)
                if time.monotonic() > deadline:
                    raise ApplicationControlFailed(
                        f"group {group} of the rehearsal got no partitions at {client.settings.alias} in {_JOIN_S:g} s",
                        transient=False,
                    )

    def _end(self, found: list[_RunningClient]) -> None:
        for each in found:
            each.client.stopping.set()
        for each in found:
            each.thread.join(_JOIN_S)
            if each.thread.is_alive():
                raise ApplicationControlFailed(f"{each.thread.name} of the rehearsal does not end", transient=True)

    def _check(self, name: str) -> None:
        for each in self._running.get(name, []):
            if each.client.failure:
                alias = each.client.settings.alias
                raise ApplicationControlFailed(
                    f"{name} of the rehearsal failed at {alias}: {each.client.failure}", transient=False
                )
