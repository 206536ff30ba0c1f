"""Connections to the brokers of one cluster, kept by address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class _Closable(Protocol):
    def close(self) -> Any: ...


_C = TypeVar("_C", bound=_Closable)


class BrokerPool(Generic[_C]):
    """One connection a broker, made by `connect` when it is needed and closed with the pool; None stands for whichever
    broker answers. Not thread-safe. Raises what `connect` raises."""

    def __init__(self, connect: Callable[[tuple[str, int] | None], _C]) -> None:
        self._connect = connect
        self._open: dict[tuple[str, int] | None, _C] = {}

    def __enter__(self) -> BrokerPool[_C]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, address: tuple[str, int]) -> _C:
        """The connection to the broker at this address."""
        return self._get(address)

    def get_any(self) -> _C:
        """The oldest connection; where there is none, one to a bootstrap address."""
        return next(iter(self._open.values())) if self._open else self._get(None)

    def drop(self, connection: _C) -> None:
        """Close a connection that broke, or on which an answer would come that nobody takes."""
        connection.close()
        self._open = {address: each for address, each in self._open.items() if each is not connection}

    def close(self) -> None:
        """Close all connections; they are opened again when they are needed."""
        while self._open:
            self._open.popitem()[1].close()

    def _get(self, address: tuple[str, int] | None) -> _C:
        if address not in self._open:
            self._open[address] = self._connect(address)
        return self._open[address]
