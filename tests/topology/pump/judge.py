"""What the linter said against what the oracle saw, property by property. Every disagreement is an AssertionError that
shows the file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from tests.topology.pump.files import NAMES, Document, text_of
from tests.topology.pump.outcome import Place, births
from tests.topology.pump.walk import Walked, walk
from watershed.topology.finding import LintFinding
from watershed.topology.lint import LintResult, lint_topology
from watershed.topology.loader import LoadedTopology, parse_topology
from watershed.topology.model import Flow, Topology
from watershed.topology.selectors import TopicSelection

CYCLES = {"GRF201", "GRF202"}
GROWTH = {"GRF203"}
COPIES = {"GRF205", "GRF206", "GRF214"}
GRAPH = CYCLES | GROWTH | COPIES | {"GRF204", "GRF207", "GRF210", "GRF212", "GRF213", "GRF219"}


@dataclass
class Case:
    """One file, what the linter says of it and what the oracle does with it (all flows running, also paused ones: the
    proofs are about what may be started)."""

    document: Document
    loaded: LoadedTopology
    findings: tuple[LintFinding, ...]

    @cached_property
    def topology(self) -> Topology:
        assert self.loaded.topology is not None, self
        return self.loaded.topology

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        return self.topology.flows

    @cached_property
    def begun(self) -> list[Place]:
        wanted = self.wanted
        held = [] if wanted is None else [(wanted[0], name) for name in NAMES if wanted[2].selects(name)]
        return births([flow.plan for flow in self.flows], NAMES, held)

    @cached_property
    def walked(self) -> Walked:
        return walk([flow.plan for flow in self.flows], self.begun)

    @cached_property
    def wanted(self) -> tuple[str, str, TopicSelection] | None:
        """Active, standby and what the pattern promises to the standby."""
        body = self.document.get("pattern", {}).get("active_standby")
        if body is None:
            return None
        topics = {**self.document.get("defaults", {}).get("topics", {}), **body.get("topics", {})}
        selection = {"exclude": [], "allow_internal": False} | topics
        return body["active"], body["standby"], TopicSelection.from_json(selection)

    def of(self, *rules: str) -> list[LintFinding]:
        return [finding for finding in self.findings if finding.rule in rules]

    @property
    def clean(self) -> bool:
        """No finding about the graph."""
        return not self.of(*GRAPH)

    def __str__(self) -> str:
        said = "\n".join(f"{f.rule} {f.severity} {f.confidence}: {f.message} {f.notes}" for f in self.findings)
        return f"{text_of(self.document, block=True)}\n{said}"


def case_of(document: Document, block: bool = False) -> Case:
    loaded = parse_topology(text_of(document, block))
    return Case(document, loaded, lint_topology(loaded).findings)


def kinds(case: Case) -> set[str]:
    """What is wrong with a file, as the oracle sees it."""
    walked = case.walked
    found = {
        "cycle": not walked.ends,
        "growth": not walked.finite,
        "duplicates": walked.settled and bool(doubled(case)),
        "collisions": walked.settled and bool(shared(case)),
        "starvation": walked.settled and bool(starved(case)),
    }
    return {kind for kind, there in found.items() if there} or {"clean"}


def doubled(case: Case) -> dict[tuple[Place, Place], set[str]]:
    """Births that are in a topic more than once, with the last flows that bring them, unless all of these say
    `merge: {duplicates: allowed}`."""
    allows = {flow.id for flow in case.flows if flow.duplicates_allowed}
    found: dict[tuple[Place, Place], set[str]] = {}
    for (birth, place), ways in case.walked.ways.items():
        last = {flow for flow, _ in ways}
        if case.walked.arrivals[birth, place] > 1 and (birth == place or not last <= allows):
            found[birth, place] = last
    return found


def shared(case: Case) -> dict[Place, set[str]]:
    """Topics that two flows write which do not both allow it, with those flows."""
    allows = {flow.id for flow in case.flows if flow.merge_allowed}
    found: dict[Place, set[str]] = {}
    for place, writers in case.walked.writers.items():
        pairs = [pair for pair in combinations(sorted(writers), 2) if not set(pair) <= allows]
        if pairs:
            found[place] = {flow for pair in pairs for flow in pair}
    return found


def starved(case: Case) -> list[tuple[Place, Place]]:
    """Births in a topic of the active cluster that the pattern selects, which never come to the standby."""
    if case.wanted is None:
        return []
    active, standby, selection = case.wanted
    come = {birth for birth, (cluster, _) in case.walked.arrivals if cluster == standby}
    come |= {birth for birth in case.begun if birth[0] == standby}
    return [
        (birth, place)
        for birth, place in sorted({*case.walked.arrivals, *((birth, birth) for birth in case.begun)})
        if place[0] == active and selection.selects(place[1]) and birth not in come
    ]


# -- the properties ------------------------------------------------------------------------------------------------


def check_all(case: Case) -> None:
    for check in (check_ends, check_witnesses, check_once, check_one_writer, check_standby, check_clean):
        check(case)


def check_ends(case: Case) -> None:
    """No cycle and no growth was found: records come to rest, names are finite."""
    walked = case.walked
    assert walked.ends or case.of(*CYCLES), f"records of {walked.circling} circulate unseen\n{case}"
    assert walked.finite or case.of(*GROWTH), f"names grow unseen\n{case}"
    if walked.settled and all(flow.plan.guard == "producer_id" for flow in case.flows):
        assert walked.hops < len(case.topology.clusters), f"{walked.hops} hops\n{case}"
    if case.clean:
        assert walked.hops <= len(walked.names), f"{walked.hops} hops\n{case}"


def check_witnesses(case: Case) -> None:
    """What is certain is real."""
    walked = case.walked
    for finding in case.findings:
        if finding.confidence != "certain":
            continue
        if finding.rule in CYCLES:
            assert not walked.ends, f"{finding.rule}: nothing circulates\n{case}"
        elif finding.rule in GROWTH:
            assert not walked.finite, f"{finding.rule}: nothing grows\n{case}"
        elif finding.rule in COPIES and walked.settled:
            real = any(_tells(finding, birth, place, flows) for (birth, place), flows in doubled(case).items())
            assert real, f"{finding.rule}: nothing arrives twice\n{finding.message}\n{case}"
        elif finding.rule == "GRF210" and finding.severity == "error" and walked.settled and not case.of(*COPIES):
            # a warning says that only a paused flow brings it, and the oracle runs those, too;
            # what arrives where something else of it did is told as a doubling, and not followed any further
            assert starved(case), f"GRF210: the standby has everything\n{case}"


def _tells(finding: LintFinding, birth: Place, place: Place, flows: set[str]) -> bool:
    needed = 1 if birth == place else 2
    one_flow_twice = len(flows) == 1  # from two topics
    return len(flows & set(finding.ids)) >= (1 if one_flow_twice else needed)


def check_once(case: Case) -> None:
    """No duplicates were found: each birth is in each topic once, and that is true of every last step."""
    walked = case.walked
    if not walked.settled:
        return
    found = doubled(case)
    assert not found or case.of(*COPIES), f"{sorted(found)[0]} twice, unseen\n{case}"
    if not any(flow.duplicates_allowed for flow in case.flows) and not case.of(*COPIES):
        assert walked.most <= 1, f"{walked.arrivals.most_common(1)}\n{case}"


def check_one_writer(case: Case) -> None:
    """No collisions were found: no topic has two flows, or a flow that would bring its own records back."""
    walked = case.walked
    if not walked.settled:
        return
    told = {flow for finding in case.of("GRF204", *COPIES) for flow in finding.ids} | _meshed(case)
    for place, flows in sorted(shared(case).items()):
        assert flows <= told, f"{sorted(flows)} write {place}, unseen\n{case}"
    running = [flow.plan for flow in case.flows if flow.plan.state == "running"]
    if not any(flow.merge_allowed for flow in case.flows) and not told:
        returned = walk(running, case.begun).returned
        assert not returned, f"{returned} have two writers, unseen\n{case}"


def _meshed(case: Case) -> set[str]:
    """The flows of meshes that a GRF206 speaks for."""
    found: set[str] = set()
    for finding in case.of("GRF206"):
        inside = [flow for flow in case.flows if flow.id in finding.ids]
        members = {alias for flow in inside for alias in (flow.source, flow.target)}
        found |= {flow.id for flow in case.flows if {flow.source, flow.target} <= members}
    return found


def check_standby(case: Case) -> None:
    if case.walked.settled:
        missing = starved(case)
        assert not missing or case.of("GRF210"), f"{missing[0]} starves unseen\n{case}"


def check_clean(case: Case) -> None:
    if case.clean:
        assert kinds(case) == {"clean"}, f"{kinds(case)}\n{case}"


def told(result: LintResult) -> list[str]:
    """Everything that a report says but positions."""
    return sorted(
        json.dumps([f.rule, f.severity, f.confidence, f.message, f.ids, f.notes, f.help, f.fingerprint, _labels(f)])
        for f in result.findings
    )


def _labels(finding: LintFinding) -> list[str]:
    return sorted(label.text for label in finding.labels)
