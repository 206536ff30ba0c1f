"""Connections by broker: one each, opened when needed, closed once."""

from __future__ import annotations

from dataclasses import dataclass

from watershed.clusters.wire.broker_pool import BrokerPool


@dataclass(eq=False)
class Made:
    address: tuple[str, int] | None
    closed: int = 0

    def close(self) -> None:
        self.closed += 1


def test_one_connection_a_broker_until_it_is_dropped() -> None:
    made: list[Made] = []

    def connect(address: tuple[str, int] | None) -> Made:
        made.append(Made(address))
        return made[-1]

    with BrokerPool(connect) as pool:
        assert pool.get_any() is pool.get_any()
        one, two = pool.get(("a", 1)), pool.get(("b", 1))
        assert pool.get(("a", 1)) is one
        assert pool.get_any() is made[0]
        pool.drop(one)
        assert one.closed == 1
        again = pool.get(("a", 1))
        assert again is not one
        pool.drop(made[0])
        assert pool.get_any() is two
    assert [each.address for each in made] == [None, ("a", 1), ("b", 1), ("a", 1)]
    assert [each.closed for each in made] == [1, 1, 1, 1]
    pool.close()
    assert pool.get(("a", 1)) is not again
