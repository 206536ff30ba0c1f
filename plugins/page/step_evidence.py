"""What a step saw, for the page: every value of its outcome with where it stood, and a gate's few that decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from watershed.cutover.step_definitions import STEPS

MAX_VALUE_CHARS = 300  # characters of one value
_EPOCH_MS = 10**12  # a time since 1970 is above it, a duration below (both end in `_ms`)
# What gates saw that decides, by step: names in its outcome. Steps that are not here are no gates.
GATE_EVIDENCE: Mapping[str, tuple[str, ...]] = {
    name: step.gate for name, step in STEPS.items() if step.gate is not None
}


def render_gate_brief(step: str, outcome: Mapping[str, Any]) -> str:
    """A gate's evidence in one line; empty for what is no gate, or saw nothing of the kind."""
    names = GATE_EVIDENCE.get(step, ()) or (tuple(outcome) if step in GATE_EVIDENCE else ())
    return "; ".join(_brief(name, outcome[name]) for name in names if outcome.get(name) not in (None, "", [], {}))


def flatten_evidence(value: Any, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """[where, what] of every value; numbers by partition are told on one line."""
    if isinstance(value, Mapping):
        if _are_numbers(value) and len(value) > 1:
            yield [" / ".join(path), _listed(value)]
            return
        for key, each in value.items():
            yield from flatten_evidence(each, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        for number, each in enumerate(value, 1):
            yield from flatten_evidence(each, (*path, str(number)))
    elif value is not None and value != [] and value != "":
        text = (
            ", ".join(map(str, value))
            if isinstance(value, list)
            else render_plain_value(value, path[-1] if path else "")
        )
        yield [" / ".join(path), _short(text)]


def render_plain_value(value: Any, name: str = "") -> str:
    """A value as people read it; `name` tells times and durations."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int):
        return str(value)
    if not name.endswith("_ms"):
        return f"{value:,}"
    return _instant(value) if value >= _EPOCH_MS else f"{value / 1000:,.1f} s"


def _brief(name: str, value: Any) -> str:
    words = name.removesuffix("_ms").replace("_", " ")
    if name == "approvals":
        return ", ".join(f"{each.get('by')} said {'yes' if each.get('granted') else 'no'}" for each in value)
    if name == "counts":
        return _listed({key: each for key, each in value.items() if each})
    if name == "hooks":
        return _short("; ".join(f"{hook} said {each.get('text')}" for hook, each in value.items()))
    if name == "groups":  # a landing test: at how many places of each group the records are the same
        return ", ".join(f"{group}: {_listed(seen)}" for group, seen in value.items() if isinstance(seen, Mapping))
    if isinstance(value, Mapping):
        return f"{words} {_listed(value)}"
    told = ", ".join(map(str, value)) if isinstance(value, list) else render_plain_value(value, name)
    return _short(told if name in ("verdict", "told") else f"{words} {told}")


def _listed(values: Mapping[str, Any]) -> str:
    """The numbers among them."""
    numbers = {key: each for key, each in values.items() if isinstance(each, int)}
    return _short(
        ", ".join(f"{str(key).replace('_', ' ')} {render_plain_value(each, str(key))}" for key, each in numbers.items())
    )


def _are_numbers(value: Mapping[str, Any]) -> bool:
    return all(isinstance(each, int) and not isinstance(each, bool) for each in value.values())


def _instant(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{ms:,}"  # no time that there is; whoever wrote it


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"
