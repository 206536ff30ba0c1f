"""Waits until every broker shows a change of ACLs or quotas. Each broker reads the metadata log at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from watershed.clusters.errors import RequestRefused
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection

_LEARNED_S = 15.0  # every broker must show a change within this time
_POLL_S = 0.02


class _BrokerLister(Protocol):
    def brokers(self) -> Mapping[int, tuple[str, int]]: ...


Broker = TypeVar("Broker")


def wait_for_every_broker(settings: ConnectionSettings, asked: Connection, holds: Callable[[Connection], bool]) -> None:
    """Wait until `holds` is true on each live broker.

    Raises RequestRefused if a broker does not show the change in time, and Unreachable if a broker does not answer.
    """
    wait_at_each_broker(settings, asked, holds, lambda address: Connection(settings, address), _LEARNED_S)


def wait_at_each_broker(
    settings: ConnectionSettings,
    asked: _BrokerLister,
    holds: Callable[[Broker], bool],
    opened: Callable[[tuple[str, int]], AbstractContextManager[Broker]],
    bound_s: float,
) -> None:
    """Ask each broker by itself, because it answers DescribeAcls and DescribeClientQuotas from its own metadata.

    A broker that starts meanwhile is not asked: it reads the metadata log to its end before anybody may write to it
    (KIP-631).
    """
    deadline = time.monotonic() + bound_s
    for node, address in sorted(asked.brokers().items()):
        with opened(address) as broker:
            while not holds(broker):
                if time.monotonic() > deadline:
                    raise RequestRefused(
                        f"broker {node} of cluster {settings.alias} does not show the change after {bound_s:g} s",
                        alias=settings.alias,
                    )
                time.sleep(_POLL_S)
