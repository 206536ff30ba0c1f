"""In place of a process apart: calls are made in the process of the test, so that its stand-ins count there as well."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from watershed.clusters.crash_isolated_client import CallFailed, ClientProcesses
from watershed.clusters.errors import ClusterError


class Here:
    """A `Child` that never ends. Arguments and answers are JSON all the same."""

    how, pid = "", 0

    def __init__(self, on_end: Callable[[Any], None]) -> None:
        pass

    def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> Any:
        module, _, function = name.partition(":")
        try:
            given = getattr(importlib.import_module(module), function)(**json.loads(json.dumps(arguments)))
        except Exception as error:  # noqa: BLE001 (as the process does)
            kind = "ClusterError" if isinstance(error, ClusterError) else type(error).__name__
            raise CallFailed(str(error), kind) from None
        return json.loads(json.dumps(given))

    def end(self, why: str) -> None:
        pass

    def join(self, timeout: float) -> None:
        pass


@cache
def asked_here() -> ClientProcesses:
    return ClientProcesses(Here)  # type: ignore[arg-type]
