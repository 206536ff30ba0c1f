"""Where a flow's values come from: the flow itself, its pattern, `defaults:`, or built in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from watershed.topology.copy_bounds import CopyBound
from watershed.topology.errors import NotInPlan, UnreadableTopology
from watershed.topology.language.flow import find_setting_unit
from watershed.topology.loader import load_topology
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.quantities import render_duration, render_rate, render_size
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector
from watershed.topology.shell_command import render_shell_command
from watershed.topology.spelling import suggest_word

# what a flow has when nobody says anything, by the path in the file
_BUILT_IN: dict[str, Callable[[Flow], Any]] = {
    "topics.exclude": lambda flow: [each.to_json() for each in flow.plan.topics.exclude],
    "naming.policy": lambda flow: flow.plan.naming.policy,
    "provenance.guard": lambda flow: flow.plan.guard,
    "provenance.forward": lambda flow: flow.plan.forward,
    "workers.engine": lambda flow: flow.plan.engine,
    "workers.placement": lambda flow: flow.plan.placement,
    "workers.count": lambda flow: flow.plan.workers,
    "workers.quota": lambda flow: flow.plan.quota,
    "workers.near": lambda _flow: "target",
    "workers.discovery": lambda flow: flow.plan.discovery_ms,
    "sync.configs.mode": lambda flow: flow.plan.sync_configs,
    "sync.configs.exclude": lambda flow: list(flow.plan.sync_configs_exclude),
    "sync.configs.include": lambda flow: list(flow.plan.sync_configs_include),
    "sync.configs.set": lambda flow: dict(flow.plan.configs_set),
    "sync.acls.mode": lambda flow: flow.plan.sync.acls.mode,
    "sync.acls.include_write": lambda flow: flow.plan.sync.acls.include_write,
    "sync.acls.prune": lambda flow: flow.plan.sync.acls.prune.mode,
    "sync.quotas.mode": lambda flow: flow.plan.sync.quotas.mode,
    "sync.users.mode": lambda flow: flow.plan.sync.users.mode,
    "sync.users.prune": lambda flow: flow.plan.sync.users.prune.mode,
    "verify.every": lambda flow: flow.plan.verify.every_ms,
    "verify.level": lambda flow: flow.plan.verify.level,
    "verify.rate": lambda flow: flow.plan.verify.rate,
    "verify.fetches": lambda flow: flow.plan.verify.fetches,
    "verify.pause_at_lag": lambda flow: flow.plan.verify.pause_at_lag_ms,
    "verify.recheck": lambda flow: flow.plan.verify.recheck,
    "delivery.start": lambda flow: flow.plan.start,
    "merge.allowed": lambda flow: flow.plan.merge,
    "protect": lambda flow: flow.plan.protect,
    "offsets": lambda flow: flow.plan.offsets,
    "state": lambda flow: flow.plan.state,
    "replication_factor": lambda flow: flow.plan.replication_factor,
}


def render_value_origins(path: Path, what: str) -> Iterator[str]:
    """Lines `flow.field = value  (file:line)`, one a value of a section. Raises NotInPlan, UnreadableTopology."""
    loaded = load_topology(path)
    if loaded.topology is None:
        lint = render_shell_command("topology", "lint", path)
        raise UnreadableTopology(f"{path}: {loaded.problems[0].message}; `{lint}` shows where")
    name, _, field = what.partition(".")
    flow = loaded.topology.flow(name)
    if flow is None:
        known = [each.id for each in loaded.topology.flows]
        near = suggest_word(name, known)
        hint = f"did you mean {near}? " if near else ""
        raise NotInPlan(f"{path}: no flow {name}; {hint}flows: {', '.join(known) or 'none'}")
    if not field:
        yield f"{flow.id}  ({flow.declared.file}:{flow.declared.line}, {flow.path})"
    found = [*_declared(flow, field), *_built_in(flow, field), *_worked_out(loaded.topology, flow, field)]
    if not found:
        fields = sorted({*_BUILT_IN, *(path for path, value in flow.settings.walk() if value.data is not None)})
        near = suggest_word(field, fields)
        hint = f"did you mean {near}? " if near else ""
        raise NotInPlan(f"{path}: flow {flow.id} has no value {field}; {hint}known: {', '.join(fields)}")
    yield from sorted(found)


def _declared(flow: Flow, field: str) -> Iterator[str]:
    for path, value in flow.settings.walk():
        is_part = path.endswith((".glob", ".regex")) or path.startswith(("delivery.start.", "delivery.end."))
        if _below(path, field) and value.data is not None and not is_part:
            yield f"{flow.id}.{path} = {_shown(path, value)}  ({value.span.file}:{value.span.line})"


def _built_in(flow: Flow, field: str) -> Iterator[str]:
    for path, read in _BUILT_IN.items():
        if _below(path, field) and flow.settings.at(*path.split(".")) is None:
            yield f"{flow.id}.{path} = {_amount(path, read(flow))}  (built in)"


def _worked_out(topology: Topology, flow: Flow, field: str) -> Iterator[str]:
    """How the flow copies follows from all flows together."""
    from watershed.topology.delivery_mode import choose_delivery_modes

    if not _below("delivery", field):
        return
    how = choose_delivery_modes(topology)[flow.id]
    yield f"{flow.id}.delivery = {how.delivery}  ({how.reason or 'it is the only writer of its target partitions'})"
    if how.paths:
        yield f"{flow.id}.delivery.paths = true  (each batch tells the clusters that it came by)"


def _below(path: str, field: str) -> bool:
    return not field or path == field or path.startswith((f"{field}.", f"{field}["))


def _shown(path: str, value: CheckedValue) -> str:
    if isinstance(value.data, Selector):
        return _text(value.data.to_json())
    if isinstance(value.data, CopyBound):
        return f"{{{value.data}}}"
    if isinstance(value.data, SecretRef):
        return f"{{{value.data.kind}: {value.data.name}}}"
    return _amount(path, value.data)


def _amount(path: str, data: Any) -> str:
    """As a person would write it in the file: with its unit."""
    write = {"duration": render_duration, "rate": render_rate, "size": render_size}.get(find_setting_unit(path))
    return write(data) if write is not None and isinstance(data, int) else _text(data)


def _text(data: Any) -> str:
    import json

    return json.dumps(data)
