"""Back behind the point of no return on real brokers, in shapes that hide faults: back again after having come back,
with groups that stand in the middle of what was carried; and out of a migration that died half-way, by drivers that
die, too. Topics have other names at the target, writers write and abort transactions, one partition stays empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cutover.fence_scene import Died
from tests.cutover.returning import AWAY, Scene, until
from tests.replicator.brokers.test_real_adoption import QUICK
from tests.replicator.real import applied, settings_of, workers
from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import read_flows
from watershed.cutover.driver import RunDriver, RunEvent
from watershed.cutover.wave_states import list_wave_states

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def scene(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One pair of workers for all waves."""
    home: Path = tmp_path_factory.mktemp("returning")
    scene = Scene(settings_of(kafka_pair), {"again": "fenced", "dying": "consumers_first"}, home)
    applied(scene.settings, scene.plan)
    with workers(scene.plan, "cloud", home, QUICK) as there, workers(scene.plan, "onprem", home, QUICK) as back:
        there()
        back()
        try:
            for app in scene.applications.values():
                app.start("onprem")
            until("the flow is served", scene.served)
            yield scene
        finally:
            for app in scene.applications.values():
                app.stop()


@pytest.mark.soak
def test_a_wave_goes_there_and_back_twice(scene: Scene) -> None:
    writer, reader = scene.writers["again"], scene.readers["again"]
    until("the first records are read", lambda: len(reader.read) == len(writer.acked))
    for _ in range(2):
        reader.most = 7  # at either end it reads on in what it has not read at the other
        for move, alias in ((scene.there, "cloud"), (scene.back, "onprem")):
            result = move("again").run()
            assert result.state == "done", (result, [event.text for event in scene.events][-20:])
            assert (writer.cluster, reader.cluster) == (alias, alias)
            writer.write(23)
        with Admin(scene.settings[AWAY]) as admin:
            assert admin.group(reader.name).offsets == {}
    flows = {name: read_flows(scene.settings[flow.target])[name] for flow in scene.plan.flows for name in [flow.id]}
    there, back = (flows[flow.id] for flow in scene.plan.flows)
    assert (there.state, there.retired) == ("running", frozenset())
    assert scene.called(writer.topic, AWAY) in back.retired
    scene.judged("again")


@pytest.mark.soak
def test_a_migration_that_died_behind_the_point_of_no_return_goes_home_by_drivers_that_die(scene: Scene) -> None:
    writer, reader = scene.writers["dying"], scene.readers["dying"]

    def dies(run: Callable[..., RunDriver], step: str, **named: str) -> None:
        def say(event: RunEvent) -> None:
            if (event.step, event.kind) == (step, "deed"):
                raise Died

        with pytest.raises(Died):
            run("dying", say=say, **named).run()

    dies(scene.there, "retire_topics", run_id="there")
    writer.write(17)
    for step in ("carry_back", "commit_back", "switch_producers", "end_migration"):
        dies(scene.back, step, run_id="back")
    result = scene.back("dying", run_id="back").run()
    assert result.state == "done", (result, [event.text for event in scene.events][-20:])
    assert (writer.cluster, reader.cluster) == ("onprem", "onprem")
    chain = scene.chain()
    assert chain.unfinished() == []
    ended = [
        entry.observation["state"] for entry in chain.run("there") if (entry.step, entry.kind) == ("run", "outcome")
    ]
    assert ended == ["rolled_back"]
    state = next(each for each in list_wave_states(scene.plan, chain) if each.name == "dying")
    assert (state.state, state.truth) == ("next", "onprem")
    scene.judged("dying")
