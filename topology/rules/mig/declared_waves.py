"""The waves of a migration, each with the place where it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watershed.topology.finding import FileSpan, Severity
from watershed.topology.migration_waves import Wave
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.rules.cluster_locations import is_loopback_cluster

BEFORE, AFTER = "before", "after"
MAX_SHOWN_WAVES = 8  # waves that one finding points at


@dataclass(frozen=True, slots=True)
class DeclaredWave:
    """One wave: `wave` is what the plan says, `value` where the file says it."""

    index: int
    wave: Wave
    value: CheckedValue

    @property
    def name(self) -> str:
        """The name of the wave."""
        return self.wave.name

    @property
    def path(self) -> str:
        """The path of the wave in the file."""
        return f"migration.waves[{self.index}]"

    @property
    def span(self) -> FileSpan:
        """Its name, or the whole of it."""
        return self.value.where("name")

    def gates(self, kind: str, *when: str) -> Iterator[CheckedValue]:
        """The gates of that kind, before, after, or (without `when`) both."""
        for each in when or (BEFORE, AFTER):
            for gate in self.value.list("gates", each):
                found = gate.at(kind)
                if found is not None:
                    yield found


def list_declared_waves(topology: Topology | None) -> tuple[DeclaredWave, ...]:
    """In the order of the file; none without a migration."""
    root = topology.root.at("migration") if topology is not None else None
    if topology is None or topology.migration is None or root is None:
        return ()
    pairs = zip(topology.migration.waves, root.list("waves"), strict=True)
    return tuple(DeclaredWave(index, wave, value) for index, (wave, value) in enumerate(pairs))


def find_declared_fences(topology: Topology | None) -> Iterator[tuple[str, CheckedValue]]:
    """Every fence that the file declares, with its path: the migration's, and those of waves."""
    root = topology.root.at("migration") if topology is not None else None
    places = (
        [("migration", root), *((move.path, move.value) for move in list_declared_waves(topology))]
        if root is not None
        else []
    )
    for path, value in places:
        fence = value.at("fence")
        if fence is not None:
            yield f"{path}.fence", fence


def find_continue_on_failure(topology: Topology, hook: str) -> CheckedValue | None:
    """Where the file says that whatever this hook answers is a yes (`on_failure: continue`); None where it does not."""
    declared = topology.root.at("migration", "hooks", hook, "on_failure")
    return declared if declared is not None and declared.data == "continue" else None


def find_shared_entries(
    waves: tuple[DeclaredWave, ...], section: str
) -> dict[str, list[tuple[DeclaredWave, FileSpan]]]:
    """What several waves list in a section, sorted: with the waves, by name, and where each first says it."""
    found: dict[str, dict[int, FileSpan]] = {}
    for move in waves:
        for each in move.value.list(section):
            found.setdefault(str(each.data), {}).setdefault(move.index, each.span)
    return {
        name: sorted(((waves[index], span) for index, span in places.items()), key=lambda place: place[0].name)
        for name, places in sorted(found.items())
        if len(places) > 1
    }


def find_migration_flow(topology: Topology) -> Flow | None:
    """The flow whose applications move; None when there is no such flow (MIG821)."""
    return topology.flow(topology.migration.flow) if topology.migration is not None else None


def lower_severity_in_lab(topology: Topology, severity: Severity) -> Severity:
    """The severity, or `info` in a lab: where every cluster of the flow is on this machine its clients know at once
    what production learns after minutes."""
    flow = find_migration_flow(topology)
    ends = (flow.source, flow.target) if flow is not None else ()
    return "info" if ends and all(is_loopback_cluster(topology.clusters.get(alias)) for alias in ends) else severity
