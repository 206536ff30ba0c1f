"""Hooks: what a migration calls of yours at its steps, by HTTP, as a function, or as a run of a DAG (docs/hooks.md).

A hook is called at least once under a key that is the same however often it is called for one purpose: run, wave, point
and name. So a run that died in a call may repeat it, and a hook that hangs or fails is asked again (C28). No shell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from watershed.clusters.errors import SecretMissing
from watershed.clusters.secrets import SecretResolver
from watershed.cutover.actions import JsonObject
from watershed.cutover.hooks.airflow_hook import AirflowHook
from watershed.cutover.hooks.hook_messages import HookCall, HookKind, HookReply
from watershed.cutover.hooks.http_hook import HttpHook
from watershed.cutover.hooks.python_hook import PythonHook
from watershed.cutover.observations import HookAnswer
from watershed.topology.migration_waves import PlanHook


@dataclass(frozen=True, slots=True)
class HookCaller:
    """`migration.hooks` of one run. run: its name, asked for at each call. clock: seconds that only grow."""

    declared: Mapping[str, PlanHook]
    topology: str
    wave: str
    run: Callable[[], str]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def problems(self, names: Iterable[str]) -> tuple[str, ...]:
        """What would keep these hooks from being called, each with its remedy: asked before anything is moved."""
        found: list[str] = []
        for name in sorted(set(names)):
            try:
                kind = self._kind(name)
                found += [f"hook {name}: {why}" for why in ([kind] if isinstance(kind, str) else kind.problems())]
            except SecretMissing as error:
                found.append(str(error))
        return tuple(found)

    def call(self, name: str, point: str, key: str, body: JsonObject) -> HookAnswer:
        """Call the hook until it says yes or no, or its timeout is over.

        key: the same for one purpose within a run. `seen` has `answer` (yes, no or silence) and `tries`; what
        `on_failure: continue` made a yes of has `continued` there. A fence that nobody confirms is none (MIG826).
        """
        full_key = f"{self.topology}/{self.run()}/{key}"
        at_ms = int(self.wall() * 1000)
        asked = HookCall(self.topology, self.run(), self.wave, name, point, full_key, body, at_ms)
        try:
            kind = self._kind(name)
            heard = HookReply("no", kind) if isinstance(kind, str) else kind.call(asked)
        except SecretMissing as error:
            heard = HookReply("no", str(error))
        seen: JsonObject = {"answer": heard.word, "tries": heard.tries, "key": full_key}
        hook = self.declared.get(name)
        agreed, text = heard.word == "yes", heard.text
        if not agreed and hook is not None and hook.on_failure == "continue" and point != "raise":
            agreed, text = True, f"{text} (on_failure: continue)"
            seen["continued"] = True
        return HookAnswer(self._now(), agreed, text, seen)

    def _kind(self, name: str) -> HookKind | str:
        """How the hook is called, or why it cannot be. Raises SecretMissing."""
        hook = self.declared.get(name)
        if hook is None:
            there = ", ".join(sorted(self.declared)) or "none"
            return f"migration.hooks declares no hook {name} (there is {there})"
        seconds = hook.timeout_ms / 1000
        if hook.http is not None:
            vault = SecretResolver("", self.environ, where=f"migration.hooks.{name}")
            secret = None if hook.secret is None else vault.text("secret", hook.secret)
            return HttpHook(hook.http, secret, seconds, self.environ, self.clock, self.sleep, self.wall)
        if hook.python is not None:
            return PythonHook(hook.python, seconds)
        if hook.airflow_task is not None:
            return AirflowHook(hook.airflow_task, seconds, self.environ, self.clock, self.sleep)
        return f"it says neither http nor python nor airflow_task; correct migration.hooks.{name}"

    def _now(self) -> int:
        return int(self.clock() * 1000)


NO_HOOKS = HookCaller({}, "", "", str)
