"""Whether Airflow's api-server answered lately: why a task is told to end is not said to it.

Airflow ends a task by the same signal in two cases. Somebody has cleared or marked it: then what it waits for should
end. Or the task's supervisor could not reach the api-server (`workers.max_failed_heartbeats`): then the next try wants
to find what it waits for still running (decision 0111).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import httpx
from airflow.sdk.configuration import conf

LEFT_S: Final = (
    900.0  # Airflow notices a dead task after 300 s (scheduler.task_instance_heartbeat_timeout), then retries
)
_LOOK_EVERY_S: Final = 5.0  # Airflow's supervisor gives up after three failures within some 15 s
_REMEMBERED_S: Final = 60.0  # an api-server that is back when the signal comes was away nevertheless
_PATIENCE_S: Final = 2.0  # Airflow kills a task 5 s after the signal


def find_health_address() -> str:
    """Where tasks reach the api-server: as Airflow's executors find it, those of the edge provider included."""
    told = conf.get("core", "execution_api_server_url", fallback="")
    edge = conf.get("edge", "api_url", fallback="")
    if not told and edge:
        told = edge.replace("edge_worker/v1/rpcapi", "execution")
    if not told:
        base = conf.get("api", "base_url", fallback="") or "/"
        told = f"{base if not base.startswith('/') else 'http://localhost:8080' + base}".rstrip("/") + "/execution"
    return f"{told.rstrip('/')}/health"


def is_api_server_there(address: str) -> bool:
    """Whether it answers, and nobody in front of it says that it does not (502 to 504)."""
    try:
        return httpx.get(address, timeout=_PATIENCE_S).status_code < httpx.codes.INTERNAL_SERVER_ERROR
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


class ApiServerWatch:
    """Looks at the api-server now and then while a task waits. ask: whether it is there; clock: seconds."""

    def __init__(self, ask: Callable[[], bool] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        address = find_health_address() if ask is None else ""
        self._ask = ask or (lambda: is_api_server_there(address))
        self._clock = clock
        self._looked = self._missed = float("-inf")

    def look(self) -> None:
        """Asks, at most every 5 s."""
        if self._clock() - self._looked >= _LOOK_EVERY_S:
            self._look_now()

    def has_been_away(self) -> bool:
        """Whether it is away now, or was seen to be in the last minute."""
        if self._clock() - self._missed > _REMEMBERED_S:
            self._look_now()
        return self._clock() - self._missed <= _REMEMBERED_S

    def _look_now(self) -> None:
        is_there = self._ask()
        self._looked = self._clock()
        if not is_there:
            self._missed = self._looked
