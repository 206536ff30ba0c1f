"""What the language can say and nothing executes: `plan` and `apply` list it each time, with what happens instead; the
reference marks the keys. A row goes when its feature comes.

`tests/topology/schema_keys.tsv` says of every key of the language who executes it; those without anybody stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from watershed.topology.flow_budgets import LONGEST_MEASURED_LATENCY_MS
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.rounded_amounts import render_first_names


@dataclass(frozen=True, slots=True)
class UnsupportedSetting:
    """A setting that the file asks for and that has no effect. where: a flow's id, `wave NAME`, or `the file`. value:
    as text; "" where the key has others below it. instead: what happens."""

    where: str
    path: str
    value: str
    instead: str

    def __str__(self) -> str:
        said = f"{self.path}: {self.value}" if self.value else self.path
        return f"{self.where}: `{said}` is not executed; {self.instead}"


@dataclass(frozen=True, slots=True)
class UnsupportedRow:
    """section: where the key stands. path of the setting in it; whether a value of it asks for something that is not
    executed; what happens instead. unless: a flow in which the value has an effect all the same. values: which ones
    `asked` means, in words, for the reference; words of the language need none."""

    section: Literal["flow", "gate", "metadata"]
    path: str
    asked: Callable[[Any], bool]
    instead: str
    unless: Callable[[Flow], bool] = lambda _flow: False
    values: str = ""


WHOLE_FILE = "the file"
UNSUPPORTED_SETTINGS = (
    UnsupportedRow(
        "flow",
        "delivery.isolation",
        lambda value: value == "read_uncommitted",
        "records of aborted transactions stay out",
    ),
    UnsupportedRow(
        "flow",
        "partitions.mapping",
        lambda value: value == "key",
        "records keep their partition, and no `transform` of the flow changes a key",
        unless=lambda flow: flow.plan.transform is not None and bool(flow.plan.transform.key_changes),
    ),
    UnsupportedRow(
        "flow",
        "workers.near",
        lambda value: value == "source",
        "workers run where they are started, and read from leaders unless `clusters.<source>.rack` names their rack",
        unless=lambda flow: flow.plan.source_rack is not None,
    ),
    UnsupportedRow(
        "flow",
        "slo.lag.p99",
        lambda value: value > LONGEST_MEASURED_LATENCY_MS,
        "latencies are measured up to 55 minutes; `slo.lag.max` is watched",
        values="over 55 minutes",
    ),
    UnsupportedRow(
        "flow",
        "slo.end_to_end.p99",
        lambda _value: True,
        "latencies of hops cannot be added up: give each hop an `slo.lag.p99`, or the chain an `end_to_end.max`",
    ),
    UnsupportedRow(
        "flow", "slo.rto", lambda _value: True, "nothing shows it before a failover: measure it with `--drill`"
    ),
    UnsupportedRow(
        "flow",
        "slo.on_breach",
        lambda value: value in ("pause", "fail"),
        "only `slo.lag.max` stops a flow, and the flow has none: the alerts of `topology alerts` tell a person",
        unless=lambda flow: flow.plan.breach is not None,
        values="`pause`, `fail` without `slo.lag.max`",
    ),
    UnsupportedRow("gate", "verify.sample", lambda value: value < 1, "the proof reads every record"),
    UnsupportedRow("metadata", "description", lambda _value: True, "it is for people"),
    UnsupportedRow("metadata", "labels", lambda _value: True, "they are for your own tools"),
)


def find_unsupported_settings(topology: Topology) -> Iterator[UnsupportedSetting]:
    """Of the file, then of its flows, then of the gates of its waves, each in order."""
    metadata = topology.root.at("metadata")
    if metadata is not None:
        yield from _find("metadata", WHOLE_FILE, metadata, "metadata.")
    for flow in topology.flows:
        yield from _find("flow", flow.id, flow.settings, flow=flow)
    migration = topology.root.at("migration")
    for wave in migration.list("waves") if migration is not None else ():
        for gate in (*wave.list("gates", "before"), *wave.list("gates", "after")):
            yield from _find("gate", f"wave {wave.get('name')}", gate)


def _find(
    section: str, where: str, settings: CheckedValue, above: str = "", flow: Flow | None = None
) -> Iterator[UnsupportedSetting]:
    for row in UNSUPPORTED_SETTINGS:
        value = settings.at(*row.path.split(".")) if row.section == section else None
        if value is None or not row.asked(value.data) or (flow is not None and row.unless(flow)):
            continue
        yield UnsupportedSetting(where, f"{above}{row.path}", _render(value.data), row.instead)


def _render(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def describe_unsupported_settings(found: Sequence[UnsupportedSetting]) -> Iterator[str]:
    """A line for each setting and value, however many flows say it."""
    places: dict[UnsupportedSetting, list[str]] = {}
    for each in found:
        places.setdefault(UnsupportedSetting("", each.path, each.value, each.instead), []).append(each.where)
    for what, where in places.items():
        names = tuple(dict.fromkeys(where))
        named = names[0] if len(names) == 1 else f"{len(names):,} places ({render_first_names(names)})"
        yield str(UnsupportedSetting(named, what.path, what.value, what.instead))


def list_unsupported_promises(path: Path) -> list[str]:
    """The lines of `describe_unsupported_settings` for a file that compiles, without what is only for people. Raises
    UnreadableTopology."""
    from watershed.topology.loader import load_topology

    loaded = load_topology(path)
    found = find_unsupported_settings(loaded.topology) if loaded.topology is not None else ()
    return list(describe_unsupported_settings([each for each in found if each.where != WHOLE_FILE]))
