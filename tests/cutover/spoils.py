"""What goes wrong in the small world, and when."""

from __future__ import annotations

from collections.abc import Callable

from tests.cutover.world import GROUP, World, target_of
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action
from watershed.cutover.observations import ActionFailed, Observation, ProofOutcome

Spoil = Callable[[World], None]


def upon(kind: type[Action], spoil: Spoil, nth: int = 1, step: str = "") -> Spoil:
    """Spoil the world when the n-th action of that kind comes (in that step, by what was said)."""

    def prepare(world: World) -> None:
        count = 0

        def hook(action: Action) -> Observation | None:
            nonlocal count
            here = not step or any(line.startswith(f"{step}: begin") for line in world.said)
            if isinstance(action, kind) and here:
                count += 1
                if count == nth:
                    spoil(world)
            return None

        world.hook = hook

    return prepare


def failing(kind: type[Action], step: str, error: str = "no") -> Spoil:
    """From that step on, that kind of action is refused for good, until the step is over."""

    def prepare(world: World) -> None:
        def hook(action: Action) -> Observation | None:
            now = next((line for line in reversed(world.said) if ": begin" in line), "")
            if isinstance(action, kind) and now.startswith(f"{step}: "):
                return ActionFailed(int(world.now * 1000), error, transient=False)
            return None

        world.hook = hook

    return prepare


def stranger(side: str) -> Spoil:
    def spoil(world: World) -> None:
        world.strangers[side] = 1  # type: ignore[index]

    return spoil


def straggle(world: World) -> None:
    world.write("source", TopicPartition("orders", 1))


def foreign(world: World) -> None:
    world.logs["target"][target_of(TopicPartition("orders", 1))].append("foreign")


def no_copying(world: World) -> None:
    world.copying = False


def run_ahead(world: World) -> None:
    world.copying = False
    for _ in range(5):
        world.tick()


def expire(world: World) -> None:
    """The source's retention takes all that orders-0 holds, the last of it before it was copied."""
    no_copying(world)
    place = TopicPartition("orders", 0)
    for _ in range(4):
        world.write("source", place)
    world.starts[place] = len(world.logs["source"][place])


def corrupt(world: World) -> None:
    """The target holds other records than the source."""
    log = world.logs["target"][target_of(TopicPartition("orders", 0))]
    log[:] = [f"not {record}" for record in log]


def verdict(verdict: str, unproven: int) -> Spoil:
    def spoil(world: World) -> None:
        world.verdict = ProofOutcome(0, verdict, unproven, {"missing": unproven}, "/proofs/s.json", "root")

    return spoil


def carried(world: World) -> None:
    place = target_of(TopicPartition("clicks", 0))
    world.kept = {place: 3}
    world.offsets["target"][GROUP] = {place: 3}


def carried_again(world: World) -> None:
    """A worker that stood still since before the commit carries what it had seen then."""
    place = target_of(TopicPartition("clicks", 0))
    world.kept = {place: 1}
    world.offsets["target"][GROUP][place] = 1


def committed_by_a_stranger(world: World) -> None:
    """Something at the target commits under the group's name, without the mark of the flow."""
    world.offsets["target"][GROUP][target_of(TopicPartition("clicks", 0))] = 1
