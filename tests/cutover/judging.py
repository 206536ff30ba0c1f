"""What must be true of the small world when a run is over: everything moved, or everything is where it was."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import REVERSE, World
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.step_runner import RunResult


def lost_and_repeated(world: World) -> tuple[int, int]:
    """After everything was read: records never processed, records processed more than once."""
    world.settle()
    seen = Counter(world.processed)
    return world.written - len(seen), sum(count - 1 for count in seen.values())


def out_of_order(world: World) -> int:
    """Records processed after a later one of the same partition; a key stays in its partition."""
    last: dict[object, int] = defaultdict(int)
    wrong = 0
    for record in world.processed:
        number, place = int(record.split()[1]), world.births[record]
        wrong += number < last[place]
        last[place] = max(last[place], number)
    return wrong


def where(world: World) -> set[tuple[str, bool]]:
    return {(app.side, app.running) for app in world.apps.values()}


def assert_moved(world: World, result: RunResult) -> None:
    assert result.state == "done", result
    assert where(world) == {("target", True)}
    assert set(world.offsets["target"]) == set(world.reads)
    assert world.retired[None] == set(world.topics), "the flow still copies what the applications write to now"
    assert not world.retired[REVERSE]
    assert lost_and_repeated(world) == (0, 0)
    assert out_of_order(world) == 0


def assert_back(world: World, result: RunResult, state: str = "rolled_back") -> None:
    """Everything is where it was: applications run at the source, and nothing of ours is left on the target."""
    assert result.state == state, result
    assert result.exit_code == 1
    assert where(world) == {("source", True)}
    assert not set(world.reads) & set(world.offsets["target"])
    assert world.fenced is None
    assert not world.retired[None] | world.retired[REVERSE]
    world.tick()
    assert lost_and_repeated(world) == (0, 0)
    assert out_of_order(world) == 0


def assert_whole(log: FakeLog) -> JournalChain:
    """The journal hashes to itself, and no run holds the lock."""
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert chain.unfinished() == []
    return chain
