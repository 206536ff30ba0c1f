"""A change of rights is in force when the last of several brokers shows it: brokers in memory, each of which learns of
it at a time of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from watershed.clusters.broker_propagation import wait_at_each_broker
from watershed.clusters.errors import RequestRefused, Unreachable
from watershed.clusters.settings import ConnectionSettings

SETTINGS = ConnectionSettings("onprem", ("127.0.0.1:1",))


@dataclass
class Trio:
    """learns: broker → at which look at it the denial is in its own metadata. The one that was asked to make the change
    knows of it at once, as a controller's broker does."""

    learns: Mapping[int, int]
    gone: frozenset[int] = frozenset()
    looks: dict[int, int] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)

    def brokers(self) -> Mapping[int, tuple[str, int]]:
        return {node: ("127.0.0.1", 9000 + node) for node in self.learns}

    @contextmanager
    def opened(self, address: tuple[str, int]) -> Iterator[int]:
        node = address[1] - 9000
        if node in self.gone:
            raise Unreachable(f"broker {node} is gone")
        yield node
        self.closed.append(node)

    def denies(self, node: int) -> bool:
        self.looks[node] = self.looks.get(node, 0) + 1
        return self.looks[node] >= self.learns[node]


def test_a_fence_is_up_when_the_last_broker_denies() -> None:
    trio = Trio({1: 1, 2: 4, 3: 7})
    wait_at_each_broker(SETTINGS, trio, trio.denies, trio.opened, 60.0)
    assert trio.looks == {1: 1, 2: 4, 3: 7}
    assert trio.closed == [1, 2, 3]


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_broker_that_never_learns_is_named(late: int) -> None:
    trio = Trio({node: 10**9 if node == late else 1 for node in (1, 2, 3)})
    with pytest.raises(RequestRefused, match=f"broker {late} of cluster onprem does not show the change"):
        wait_at_each_broker(SETTINGS, trio, trio.denies, trio.opened, 0.1)


def test_a_broker_that_is_gone_is_no_broker_that_denies() -> None:
    trio = Trio({1: 1, 2: 1, 3: 1}, gone=frozenset({2}))
    with pytest.raises(Unreachable, match="broker 2"):
        wait_at_each_broker(SETTINGS, trio, trio.denies, trio.opened, 60.0)
