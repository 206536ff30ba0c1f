"""Time that only passes when somebody sleeps, for the modules that are told so and for nobody else: threads that other
tests left behind sleep, too."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest


def stopped(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[float]:
    """[now], in seconds."""
    now = [1_000.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0],
        time=lambda: now[0],
        time_ns=lambda: round(now[0] * 1e9),
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    )
    for module in modules:
        monkeypatch.setattr(module, "time", clock)
    return now
