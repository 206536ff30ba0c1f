"""Groups that stay at the source when their producers move, on real brokers with real workers: two producers and three
groups of one topic. The producers move, one group moves with them, two stay while traffic runs on; then they follow in
either order, one of them after it has gone back once. Topics have other names at the target, and producers abort
transactions."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cutover.returning import AWAY, HOME, PARTITIONS, Reader, Scene, Writer, until
from tests.replicator.brokers.test_real_adoption import QUICK
from tests.replicator.real import applied, read_all, settings_of, workers
from watershed.clusters.flow_records import read_flows
from watershed.cutover.wave_states import list_wave_states
from watershed.topology.migration_waves import RollbackPolicy, Wave, complete_late_waves

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]

WAVE, WRITERS, EARLY, LATE = "orders", ("checkout", "web-edge"), "billing", ("reports", "audit")


class SteadyWriter(Writer):
    """Writes a little at a time, whenever it runs."""

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, WAVE)
        self.name, self._lock, self._over = name, threading.Lock(), threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, alias: str) -> None:
        with self._lock:
            super().start(alias)

    def stop(self) -> None:
        with self._lock:
            super().stop()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            with self._lock:
                if self.cluster is not None:
                    self.write(10)

    def end(self) -> None:
        self._over.set()
        self.stop()


class LateScene(Scene):
    def build_applications(self) -> tuple[dict[str, Writer], dict[str, Reader]]:
        readers = {name: Reader(self, WAVE) for name in (EARLY, *LATE)}
        for name, reader in readers.items():
            reader.name = self.group(name)
        return {name: SteadyWriter(self, name) for name in WRITERS}, readers

    def declare_waves(self, way: RollbackPolicy) -> tuple[Wave, ...]:
        topics = (self.topics[WAVE],)
        first = Wave(WAVE, topics, (self.group(EARLY),), WRITERS, strategy=self.waves[WAVE], rollback=way)
        late = (Wave(name, topics, (self.group(name),), strategy="consumers_last") for name in LATE)
        return complete_late_waves((first, *late))


@contextmanager
def scene_of(lab: Lab, home: Path) -> Iterator[LateScene]:
    scene = LateScene(settings_of(lab), {WAVE: "consumers_first"}, home)
    applied(scene.settings, scene.plan)
    with workers(scene.plan, "cloud", home, QUICK) as there, workers(scene.plan, "onprem", home, QUICK) as back:
        there()
        back()
        try:
            for app in scene.applications.values():
                app.start(HOME)
            until("the flow is served", scene.served)
            yield scene
        finally:
            for writer in scene.writers.values():
                writer.end()  # type: ignore[attr-defined]
            for reader in scene.readers.values():
                reader.stop()


def move(scene: LateScene, wave: str) -> None:
    result = scene.there(wave).run()
    assert result.state == "done", (result, [event.text for event in scene.events][-20:])


def wait_for_reading(scene: LateScene, count: int = 60) -> None:
    """Every group goes on reading, wherever it is."""
    before = {name: len(reader.read) for name, reader in scene.readers.items()}
    for name, reader in scene.readers.items():
        until(f"{name} reads on", lambda r=reader, n=before[name]: len(r.read) >= n + count)


@pytest.mark.parametrize("order", [LATE, LATE[::-1]], ids="-then-".join)
def test_late_groups_read_every_record_once_and_in_order(
    kafka_pair: Lab, tmp_path: Path, order: tuple[str, str]
) -> None:
    with scene_of(kafka_pair, tmp_path) as scene:
        wait_for_reading(scene)
        began = time.monotonic()
        move(scene, WAVE)
        print(f"producers and {EARLY} moved in {time.monotonic() - began:.1f} s")
        sides = {name: scene.look(app.name).cluster for name, app in (*scene.writers.items(), *scene.readers.items())}
        assert sides == dict.fromkeys((*WRITERS, EARLY), AWAY) | dict.fromkeys(LATE, HOME)
        wait_for_reading(scene)
        waiting = [each for each in list_wave_states(scene.plan, scene.chain()) if each.at_source]
        assert [each.at_source for each in waiting] == [(scene.group(name),) for name in LATE]
        for name in order:
            began = time.monotonic()
            move(scene, name)
            print(f"{name} moved in {time.monotonic() - began:.1f} s")
            assert scene.readers[name].cluster == AWAY
            wait_for_reading(scene)
        again = order[0]
        result = scene.back(again).run()
        assert result.state == "done", (result, [event.text for event in scene.events][-20:])
        assert scene.readers[again].cluster == HOME
        wait_for_reading(scene)
        move(scene, again)
        wait_for_reading(scene)
        back = scene.plan.flows[1]
        assert read_flows(scene.settings[HOME])[back.id].state == "running"
        assert not any(each.at_source for each in list_wave_states(scene.plan, scene.chain()))
        judge(scene)


def judge(scene: LateScene) -> None:
    """Each record stands on both sides once, in one order; each group has read it once, in that order."""
    for writer in scene.writers.values():
        writer.end()  # type: ignore[attr-defined]
    written = [word for writer in scene.writers.values() for word in writer.acked]
    for name, reader in scene.readers.items():
        until(f"{name} has read everything", lambda r=reader: len(r.read) >= len(written))
        reader.stop()
    until("everything is carried back", lambda: sum(map(len, words(scene, HOME))) >= len(written))
    there, home = words(scene, AWAY), words(scene, HOME)
    assert sorted(word for log in there for word in log) == sorted(written)
    assert home == there
    for name, reader in scene.readers.items():
        counted = Counter(word for _, word in reader.read)
        repeated, missed = sum(counted.values()) - len(counted), len(set(written) - set(counted))
        print(f"{name}: {len(counted)} records read, {repeated} again, {missed} missed")
        assert (repeated, missed) == (0, 0), name
        for number in range(PARTITIONS):
            assert [word for partition, word in reader.read if partition == number] == there[number], (name, number)


def words(scene: LateScene, alias: str) -> list[list[str]]:
    found = read_all(scene.settings[alias], scene.called(scene.topics[WAVE], alias), PARTITIONS)
    return [[(value or b"").decode() for _, (_, value, *_) in found[number]] for number in range(PARTITIONS)]
