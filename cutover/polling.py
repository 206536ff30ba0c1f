"""Asking and waiting inside a migration, without a clock: time is what the observations say it is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from watershed.cutover.actions import Action, JsonObject, PauseRun, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ActionFailed, Observation
from watershed.cutover.policy import WavePolicy

_T = TypeVar("_T")
O = TypeVar("O", bound=Observation)  # noqa: E741  -- an observation

_FIRST_MS = 50

ActionGenerator = Generator[Action, Observation, _T]


@dataclass(frozen=True, slots=True)
class ConditionCheck:
    """One look at a condition: does it hold, what was seen (for people, and as JSON), and when."""

    holds: bool
    text: str
    at_ms: int
    seen: JsonObject


def perform_action(action: Action, answer: type[O], policy: WavePolicy) -> ActionGenerator[O]:
    """Ask until there is an answer. Raises Refused at once for a refusal, and after `policy.reach_ms` of silence."""
    first: int | None = None
    pauses = _pauses(policy)
    while True:
        seen = yield action
        if isinstance(seen, answer):
            return seen
        if not isinstance(seen, ActionFailed):
            raise TypeError(f"{type(action).__name__} was answered with {type(seen).__name__}")
        if not seen.transient:
            raise Refused(seen.error)
        first = seen.at_ms if first is None else first
        if seen.at_ms - first >= policy.reach_ms:
            raise Refused(f"{seen.error} (asked again for {_seconds(policy.reach_ms)})")
        yield PauseRun(next(pauses))


def wait_for_condition(
    check: Callable[[], ActionGenerator[ConditionCheck]],
    bound_ms: int,
    policy: WavePolicy,
    *,
    times: int = 1,
    hold_ms: int = 0,
) -> ActionGenerator[ConditionCheck]:
    """Look until the condition held `times` times in a row and for `hold_ms`. Raises Refused after `bound_ms`.

    The bound counts from the first look and must leave room for `hold_ms`. What is seen is said now and then. Looks
    begin close to one another: what is waited for is often there at once, and some of it while nobody can write.
    """
    pauses = _pauses(policy)
    started: int | None = None
    since: int | None = None
    reported_ms, reported, row = 0, "", 0
    while True:
        found = yield from check()
        started = found.at_ms if started is None else started
        row = row + 1 if found.holds else 0
        since = (since if since is not None else found.at_ms) if found.holds else None
        if since is not None and row >= times and found.at_ms - since >= hold_ms:
            return found
        if found.at_ms - started >= bound_ms:
            raise Refused(f"{found.text} (waited {_seconds(bound_ms)})", found.seen)
        if found.text != reported and (not reported or found.at_ms - reported_ms >= policy.say_ms):
            reported_ms, reported = found.at_ms, found.text
            yield ReportMessage(found.text, found.seen)
        yield PauseRun(next(pauses))


def _pauses(policy: WavePolicy) -> Iterator[int]:
    """Growing by half, up to `poll_ms`."""
    pause = _FIRST_MS
    while True:
        yield min(pause, policy.poll_ms)
        pause += pause // 2


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
