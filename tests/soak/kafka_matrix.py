"""`python -m tests.soak.kafka_matrix` (`make soak-kafka`): what copying comes to between Kafka releases, pair by pair.

Each pair gets two clusters of its own and every case of `kafka_matrix_cases`. What came of a case is kept with its
date, so that a run of a few pairs renews those and leaves the others: docs/releases.json. docs/releases.md is the table
of it. Exit code 0: everything held that was run, 1: something did not.

One end of a pair may be a server that is not Apache's (`lab.other_servers`). It is probed first, and
`topology.delivery_guarantee` says whether a flow between the two can have `exactly_once`, or, if not,
`at_least_once, proven`. If so, every case has to hold; with the latter, records may stand at the target once more, and
are counted. If not, `apply` has to refuse the flow and must leave nothing at the target. docs/other-servers.json is
what the probes saw.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.replicator.real import plan_for, settings_of
from tests.soak.kafka_matrix_cases import CASES, MatrixCase, NotPossible, PairUnderTest
from watershed.clusters.admin import Admin
from watershed.clusters.capabilities import read_capabilities
from watershed.clusters.errors import ClusterError, RequestRefused
from watershed.clusters.kafka_release import parse_release
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.errors import LabError
from watershed.lab.other_servers import OtherServer, end_other_server, list_other_servers, start_other_server
from watershed.lab.releases import DEFAULT_RELEASE, RELEASES
from watershed.replicator.apply import apply_plan
from watershed.replicator.apply_refusals import CannotApply
from watershed.replicator.capability_probe import probe_cluster
from watershed.replicator.errors import ReplicatorError
from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.delivery_guarantee import GuaranteeDecision, decide_guarantee

SOURCES = ("0.11.0.3", "1.1.1", "2.4.1", "2.8.2", "3.3.2", "3.9.1", "4.3.1")
TARGETS = ("2.4.1", "2.8.2", "3.9.1", "4.3.1")
_DOCS = Path(__file__).parents[2] / "docs"
RESULTS, TABLE, PROBES = _DOCS / "releases.json", _DOCS / "releases.md", _DOCS / "other-servers.json"
_APACHE_BESIDE = DEFAULT_RELEASE  # what a server that is not Apache's copies from and to
_HEAD = """# Releases

Written by `make soak-kafka` from what it ran, with the date of each run; not edited by hand. Each cell copied from a
real cluster of one Kafka release to one of another. "Held" means: every committed record is at the target once, in
order, with the same key, value, headers and time, and the offset map is right at every offset. What stands
beside the records (groups, rights, limits, inventories) is tried from 0.11.0.3 and 2.4.1 by
`tests/replicator/brokers/test_real_old_sources.py`. Whole runs by the `topology` command, with applications running,
are part of `make soak`: migrations from 0.11.0.3, 1.1.1 and 2.4.1, there and back with 2.8.2
(`tests/cutover/spark/test_real_old_moves.py`); failovers from 1.1.1, 2.4.1 and 2.8.2 (`test_real_old_failover.py`
beside it); a takeover from MirrorMaker 2 that copied from 2.4.1
(`tests/replicator/spark/test_real_old_takeover.py`). The same through Airflow: `make demo SOURCE=2.4.1`.

"""
_LEGEND = (
    "`yes`: held; `NO`: did not hold, the reason is in `docs/releases.json`; `–`: the release lacks it; empty: not run."
)
_OTHERS = """## Servers that are not Apache's

One end of each pair is Apache Kafka 4.3.1, the other one a server that is not: kfake, a broker for tests (of franz-go),
that takes the requests and versions of a vendor (`lab/kfake/tables`) and no others; and Tansu 0.6.0. kfake lists what a
vendor lists, and behaves like itself: it does not show what a vendor's broker does otherwise.
Where a pair can give no `exactly_once`, the flows were applied with `delivery.semantics: at_least_once`. "Held" means
there: every committed record is at the target, in order, and what stands there once more was counted
(`docs/releases.json`).
`refused`: what both servers can do gives neither guarantee; `topology apply` said so, and left nothing at the target.
The reason is in `docs/releases.json`.
"""
_PROBED = """What `topology probe` saw of them (the words are in `docs/other-servers.json`):
"""


def main() -> int:
    """Runs the chosen pairs and cases, and writes the table after each pair. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kafka_matrix", description=__doc__)
    parser.add_argument("--pairs", default="", help="as 2.4.1/4.3.1,tansu/4.3.1, or `others`; all otherwise")
    parser.add_argument("--cases", default="", help=f"of {', '.join(case.name for case in CASES)}; all otherwise")
    options = parser.parse_args()
    known = [case.name for case in CASES]
    names = options.cases.split(",") if options.cases else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--cases: there is no case {', '.join(map(repr, unknown))}; say of {', '.join(known)}")
    try:
        pairs = _choose_pairs(options.pairs)
    except ValueError as problem:
        parser.error(f"--pairs: {problem}")
    cases = [case for case in CASES if case.name in names]
    held = True
    for source, target in pairs:
        held = run_pair(source, target, cases) and held
    return 0 if held else 1


def _choose_pairs(text: str) -> list[tuple[str, str]]:
    """Those that `text` names; all of them for "", those with a server that is not Apache's for `others`. Raises
    ValueError."""
    others = [pair for name in list_other_servers() for pair in ((name, _APACHE_BESIDE), (_APACHE_BESIDE, name))]
    if text == "others":
        return others
    if text:
        return [_parse_pair(each) for each in text.split(",")]
    return [(source, target) for target in reversed(TARGETS) for source in SOURCES] + others


def _parse_pair(text: str) -> tuple[str, str]:
    """`2.4.1/4.3.1` → the two ends. Raises ValueError for anything else."""
    parts, known = text.split("/"), [*RELEASES, *list_other_servers()]
    if len(parts) != 2 or not set(parts) <= set(known):
        raise ValueError(f"{text!r} is not SOURCE/TARGET with two of {', '.join(known)}")
    return parts[0], parts[1]


def run_pair(source: str, target: str, cases: Iterable[MatrixCase]) -> bool:
    """Whether every case held. What came of each is in the files afterwards."""
    held = True
    try:
        with _started_pair(source, target) as pair:
            decision = _decide(pair)
            if not decision.is_executed and (less := _decide(pair, allows_repeats=True)).is_executed:
                pair, decision = replace(pair, allows_repeats=True), less
            refused = None if decision.is_executed else _try_refusal(pair, decision)
            for case in cases:
                found = refused or _run_case(pair, case)
                held = held and found["outcome"] != "failed"
                print(f"{source} to {target}, {case.name}: {found['outcome']} {found['told']}", flush=True)
                _keep(source, target, case.name, found)
    except (LabError, ClusterError) as error:
        print(f"{source} to {target}: {error}", file=sys.stderr)
        return False
    probes = json.loads(PROBES.read_text()) if PROBES.exists() else {}
    TABLE.write_text(render_table(json.loads(RESULTS.read_text()), probes))
    return held


@contextmanager
def _started_pair(source: str, target: str) -> Iterator[PairUnderTest]:
    """Both clusters, in a folder that is gone afterwards; those that are not Apache's are probed."""
    ends = {"onprem": source, "cloud": target}
    releases = {alias: end for alias, end in ends.items() if end in RELEASES}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-matrix-")))
        others: dict[str, OtherServer] = {}
        for alias in ends.keys() - releases.keys():
            others[alias] = start_other_server(ends[alias], scratch / alias)
            stack.callback(end_other_server, others[alias])
        stack.callback(clusters.end_clusters, scratch / "lab")
        known = {alias: ConnectionSettings(alias, (each.address,)) for alias, each in others.items()}
        if releases:
            known |= settings_of(clusters.start_clusters(scratch / "lab", list(releases), kafka=releases))
        probed = {alias: probe_cluster(known[alias]) for alias in others}
        for alias, seen in probed.items():
            _keep_probe(ends[alias], seen)
        settings = {alias: known[alias] for alias in ends}
        yield PairUnderTest(source, target, scratch / "lab", settings, scratch, others, probed)


def _decide(pair: PairUnderTest, *, allows_repeats: bool = False) -> GuaranteeDecision:
    """The guarantee of a flow from one end to the other, by what they list and by what was probed."""
    able = {alias: pair.capabilities.get(alias) or read_capabilities(pair.settings[alias]) for alias in pair.settings}
    return decide_guarantee("sequence", able["onprem"], able["cloud"], allows_repeats=allows_repeats)


def _try_refusal(pair: PairUnderTest, decision: GuaranteeDecision) -> dict[str, Any]:
    """What comes of every case: `apply` refuses any flow of the pair, and writes nothing at the target."""
    told, is_meant = "", False
    with Admin(pair.settings["cloud"]) as admin:
        before = set(admin.topics())
        plan = plan_for(pair.settings, "refused", "refused")
        try:
            apply_plan(plan, pair.settings.__getitem__, probed=pair.capabilities.values())
        except (CannotApply, ClusterError) as refusal:
            told, is_meant = _without_address(str(refusal)), is_meant_refusal(refusal, decision)
        left = sorted(set(admin.topics()) - before)
    missing = "; ".join(each.what for each in decision.missing)
    if is_meant and not left:
        return {"outcome": "refused", "told": f"{told} (missing: {missing})", "day": _today()}
    wrong = f"failed otherwise than by a refusal: {told}" if told else f"applied, though this is missing: {missing}"
    wrong += f"; left {', '.join(left)}" if left else ""
    return {"outcome": "failed", "told": wrong, "day": _today()}


def is_meant_refusal(error: CannotApply | ClusterError, decision: GuaranteeDecision) -> bool:
    """Whether `apply` refused the flow for something that the decision finds missing, and did not fail by itself."""
    if not isinstance(error, CannotApply | RequestRefused):
        return False
    return any(each.what.removesuffix(f" at {each.cluster}") in str(error) for each in decision.missing)


def _run_case(pair: PairUnderTest, case: MatrixCase) -> dict[str, Any]:
    day = _today()
    try:
        return {"outcome": "held", "told": case.run(pair), "day": day}
    except NotPossible as reason:
        return {"outcome": "not there", "told": _without_address(str(reason)), "day": day}
    except (AssertionError, ClusterError, ReplicatorError, KafkaException, LabError) as problem:
        traceback.print_exc()
        return {"outcome": "failed", "told": f"{type(problem).__name__}: {problem}"[:400], "day": day}


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _keep(source: str, target: str, case: str, found: Mapping[str, Any]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known.setdefault(f"{source}/{target}", {})[case] = found
    ordered = dict(sorted(known.items(), key=lambda each: [_rank_end(part) for part in each[0].split("/")]))
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def _rank_end(end: str) -> tuple[bool, tuple[int, ...], str]:
    """Releases first, by age; then the others by name."""
    return (False, parse_release(end), "") if end in RELEASES else (True, (), end)


def _keep_probe(name: str, seen: ClusterCapabilities) -> None:
    known = json.loads(PROBES.read_text()) if PROBES.exists() else {}
    tried = {what: {"works": each.works, "told": _without_address(each.told)} for what, each in seen.tried.items()}
    known[name] = {"looks_like": seen.releases, "topic_ids": seen.topic_ids, "tried": tried, "day": _today()}
    PROBES.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")


def _without_address(told: str) -> str:
    """Ports and names of a run say nothing to a reader, and would change the file with each one."""
    shorter = re.sub(r"\b127\.0\.0\.1:\d+", "the broker", told)
    return re.sub(r"watershed\.probe-[0-9a-f]+", "watershed.probe-…", shorter)


def render_table(results: Mapping[str, Mapping[str, Mapping[str, Any]]], probes: Mapping[str, Any]) -> str:
    """The page, from what is known of each pair and of each server that is not Apache's. Pure."""
    of_apache = {pair: found for pair, found in results.items() if set(pair.split("/")) <= RELEASES.keys()}
    of_others = {pair: found for pair, found in results.items() if pair not in of_apache}
    lines = [_HEAD.rstrip(), ""]
    lines += [f"- **{case.name}**: {case.text}" for case in CASES]
    lines += ["", _LEGEND, "", *_render_pairs(of_apache)]
    lines += ["", f"{len(of_apache)} of {len(SOURCES) * len(TARGETS)} pairs were run.", ""]
    if of_others:
        lines += [_OTHERS, *_render_pairs(of_others), "", _PROBED, *_render_probes(probes), ""]
    return "\n".join(lines)


def _render_pairs(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    shown = {"held": "yes", "failed": "NO", "not there": "–", "refused": "refused"}
    lines = [f"| source | target | {' | '.join(case.name for case in CASES)} | run |"]
    lines.append(f"|---|---|{'---|' * len(CASES)}---|")
    for pair, found in results.items():
        source, target = pair.split("/")
        cells = [shown[found[case.name]["outcome"]] if case.name in found else "" for case in CASES]
        days = sorted({str(each["day"]) for each in found.values()})
        lines.append(f"| {source} | {target} | {' | '.join(cells)} | {days[-1]} |")
    return lines


def _render_probes(probes: Mapping[str, Any]) -> list[str]:
    shown = {True: "works", False: "does not", None: "not tried"}
    names = list(dict.fromkeys(name for each in probes.values() for name in each["tried"]))
    lines = [f"| tried | {' | '.join(probes)} |", f"|---|{'---|' * len(probes)}"]
    for name in names:
        cells = [shown[each["tried"][name]["works"]] if name in each["tried"] else "" for each in probes.values()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
