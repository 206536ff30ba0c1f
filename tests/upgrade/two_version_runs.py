"""Runs of the small world (tests/cutover) that one version begins and another one finishes.

As a program, with PYTHONPATH naming a version with its tests: it reads orders from stdin, a JSON line each, and answers
with a line. The world travels as a pickle from one process to the other; a driver knows only what the journal says.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_whole
from tests.cutover.moved import assert_home
from tests.cutover.moved import moved as build_moved_world
from tests.cutover.spoils import straggle, upon
from tests.cutover.test_crash_matrix import Story, back, everything, moved
from tests.cutover.world import World, a_migration, a_plan, holding_back
from tests.cutover.world_back import BackWorld, a_rollback
from watershed.cutover import driver
from watershed.cutover.actions import ReadLogs

# What happens: an order of steps to its end; the same, taken back because somebody writes to the source at the last
# look; or a rollback of a migration that is done.
STORIES = [
    *((strategy, end) for strategy in ("consumers_first", "producers_first", "fenced") for end in ("moved", "back")),
    ("consumers_first", "home"),
]


@dataclass
class Scene:
    """A world and its journal, between two processes."""

    strategy: str
    end: str
    world: World
    log: FakeLog

    @classmethod
    def begin(cls, strategy: str, end: str) -> Scene:
        log = FakeLog()
        if end == "home":
            return cls(strategy, end, build_moved_world(log), log)
        return cls(strategy, end, Story(strategy, lambda _world: None, moved).world(), log)  # type: ignore[arg-type]

    def pack(self) -> str:
        """A hook belongs to whoever drives, so it stays behind."""
        self.world.hook = None  # type: ignore[assignment]
        told = pickle.dumps((self.strategy, self.end, vars(self.world), self.log.records))
        return base64.b64encode(told).decode()

    @classmethod
    def unpack(cls, text: str) -> Scene:
        strategy, end, world, records = pickle.loads(base64.b64decode(text))
        kind = BackWorld if end == "home" else World
        found = kind.__new__(kind)
        vars(found).update(world)
        return cls(strategy, end, found, FakeLog(records))

    def drive(self, holder: str, crash_at: int | None = None) -> str:
        """Another process goes on, until it has written so many more entries, or to the end. Returns why it ended."""
        self.world.hook = lambda _action: None
        if self.end == "back":
            upon(ReadLogs, straggle, step="point_of_no_return")(self.world)
        for _ in range(3):
            self.world.tick()
        self.log.crash_at = None if crash_at is None else len(self.log.records) + crash_at
        try:
            result = self._build_driver(holder).run()
        except Crash:
            return "crashed"
        {"moved": moved, "back": back, "home": assert_home}[self.end](self.world, result)  # type: ignore[operator]
        assert_whole(self.log)
        return result.state

    def _build_driver(self, holder: str) -> driver.RunDriver:
        if self.end == "home":
            return a_rollback(self.world, self.log, holder, run_id="back")  # type: ignore[arg-type]
        plan, policy = holding_back(a_plan(strategy=self.strategy)), everything(self.strategy)  # type: ignore[arg-type]
        return a_migration(self.world, self.log, holder, plan=plan, policy=policy, run_id="r1")


def name_evidence_only(directory: Path, *_rest: Any) -> Path:
    """In place of `write_run_evidence`: what is in a pack has its own tests, and packs take longer than all else."""
    return directory / "evidence.json"


def answer_order(order: dict[str, Any]) -> dict[str, Any]:
    scene = Scene.unpack(order["scene"]) if "scene" in order else Scene.begin(order["strategy"], order["end"])
    state = scene.drive(order["holder"], order.get("crash_at"))
    return {"state": state, "scene": scene.pack(), "entries": scene.log.records}


def serve() -> None:
    driver.write_run_evidence = name_evidence_only  # type: ignore[assignment]
    for line in sys.stdin:
        try:
            told = answer_order(json.loads(line))
        except (Exception, AssertionError) as error:  # noqa: BLE001  the asking process raises it
            told = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    serve()
