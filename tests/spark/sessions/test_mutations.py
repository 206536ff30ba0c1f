"""Every mutation of a copy on real brokers is reported as exactly its class and count, and clean copies as nothing.

One proof covers them all: a partition for each mutation, in one topic whose copy has the source's batches and in one
whose copy is packed otherwise; what needs transactions has partitions behind those of the table; and a topic whose copy
is aligned, where each record is expected at its own offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.replicator.real import end_of, settings_of, wait_end
from tests.spark.logs import Log, Packed, a_log, append, changed, edited, packed, records_of
from tests.spark.mutations import CHUNK, COUNT, KINDS, MUTATIONS, STRANGE, Mutation, by_batches
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.judging.flow_observation import PartitionAlignment
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LAYOUTS = ("as the source packed it", "packed otherwise")
ALIGNED = "aligned"


@dataclass(frozen=True, slots=True)
class Side:
    """One partition on one cluster, written to step by step."""

    settings: ConnectionSettings
    topic: str
    partition: int

    def write(self, log: Log) -> None:
        append(self.settings, self.topic, {self.partition: log})

    def transaction(self, records: list[ConsumedRecord], *, abort: bool = False) -> None:
        """Takes an offset a record and one for its marker."""
        before = end_of(self.settings, self.topic, self.partition)
        sending = self._begun(records)
        (sending.abort_transaction if abort else sending.commit_transaction)(60)
        wait_end(self.settings, self.topic, self.partition, before + len(records) + 1)

    def open_transaction(self, records: list[ConsumedRecord]) -> Producer:
        return self._begun(records)

    def _begun(self, records: list[ConsumedRecord]) -> Producer:
        name = f"{self.topic}-{self.partition}-{time.monotonic_ns()}"
        sending = Producer(
            self.settings.librdkafka({"transactional.id": name, "linger.ms": 5, "transaction.timeout.ms": 600_000})
        )
        sending.init_transactions(60)
        sending.begin_transaction()
        for r in records:
            sending.produce(self.topic, r.value, r.key, self.partition, timestamp=r.timestamp, headers=list(r.headers))
        assert sending.flush(60) == 0
        return sending


@dataclass(frozen=True, slots=True)
class Scene:
    """What a list of batches cannot show: write(source side, target side). runs: (target, source) of the offset map."""

    name: str
    write: Callable[[Side, Side], Any]
    found: dict[str, int] = field(default_factory=dict)
    components: tuple[str, ...] = ()
    proven: int = COUNT
    runs: tuple[tuple[int, int], ...] = ((0, 0),)


def _both(*steps: Callable[[Side], Any]) -> Callable[[Side, Side], None]:
    def write(source: Side, target: Side) -> None:
        for step in steps:
            step(source)
            step(target)

    return write


WHOLE = a_log(5, COUNT)
BATCHES = packed(WHOLE)
HEAD, REST = BATCHES[:8], BATCHES[8:]
N_HEAD = len(records_of(HEAD))


def _then(*, source: Callable[[Side], Any] | None = None, target: Callable[[Side], Any] | None = None) -> Any:
    """The same log on both sides, then something else behind it."""

    def write(one: Side, two: Side) -> list[Any]:
        one.write(BATCHES)
        two.write(BATCHES)
        return [step(side) for step, side in ((source, one), (target, two)) if step is not None]

    return write


def _inside(*, source: Callable[[Side], Any] | None = None, target: Callable[[Side], Any] | None = None) -> Any:
    """Something else on one side between two parts of the same log."""

    def write(one: Side, two: Side) -> None:
        for side, step in ((one, source), (two, target)):
            side.write(HEAD)
            if step is not None:
                step(side)
            side.write(REST)

    return write


SCENES = (
    Scene("aborted at the source's tail", _then(source=lambda s: s.transaction([STRANGE] * 3, abort=True))),
    Scene("aborted at the target's tail", _then(target=lambda s: s.transaction([STRANGE] * 3, abort=True))),
    Scene("open at the source's tail", _then(source=lambda s: s.open_transaction([STRANGE] * 3))),
    Scene("open at the target's tail", _then(target=lambda s: s.open_transaction([STRANGE] * 3))),
    Scene(
        "control record at the source's tail",
        lambda one, two: (one.write(HEAD), one.transaction(list(records_of(REST))), two.write(BATCHES)),
    ),
    Scene(
        "control record at the target's tail",
        lambda one, two: (one.write(BATCHES), two.write(HEAD), two.transaction(list(records_of(REST)))),
    ),
    Scene(
        "aborted inside the source",
        _inside(source=lambda s: s.transaction([STRANGE] * 3, abort=True)),
        runs=((0, 0), (N_HEAD, N_HEAD + 4)),
    ),
    Scene(
        "somebody's aborted inside the target",
        _inside(target=lambda s: s.transaction([STRANGE] * 3, abort=True)),
    ),
    Scene(
        "somebody's committed inside the target",
        _inside(target=lambda s: s.transaction([STRANGE] * 3)),
        {"foreign": 3},
    ),
    Scene(
        "aborted at the source and copied all the same",
        lambda one, two: (
            one.write(HEAD),
            one.transaction([STRANGE] * 2, abort=True),
            one.write(REST),
            two.write((*HEAD, Packed((STRANGE, STRANGE)), *REST)),
        ),
        {"foreign": 2},
        runs=((0, 0), (N_HEAD + 2, N_HEAD + 3)),
    ),
    Scene(
        "committed at the source and aborted on the target",
        lambda one, two: (
            one.write(BATCHES),
            two.write(HEAD),
            two.transaction(records_of(REST)[:5], abort=True),
            two.write(packed(records_of(REST)[5:], (20,))),
        ),
        {"missing": 5},
        proven=COUNT - 5,
    ),
)

# Both sides: HEAD, two records and a marker, REST.
GAP = [STRANGE, ConsumedRecord(b"gap", b"1", 1_600_000_000_001)]
HOLE = _both(lambda s: s.write(HEAD), lambda s: s.transaction(GAP), lambda s: s.write(REST))
N_REST = len(records_of(REST))


def _aligned(target: Callable[[Side], Any]) -> Callable[[Side, Side], None]:
    def write(one: Side, two: Side) -> None:
        one.write(HEAD)
        one.transaction(GAP)
        one.write(REST)
        target(two)

    return write


IN_PLACE = (
    Scene("as it is", HOLE, proven=COUNT + 2),
    Scene(
        "gap missing",
        _aligned(lambda s: s.write((*HEAD, Packed(tuple(GAP)), *REST))),
        {"altered": N_REST - 1},  # of two equal ones in a row the second stands where the first should
        ("offset",),
        proven=N_HEAD + 3,
    ),
    Scene(
        "one again where the gap was",
        _aligned(lambda s: s.write((*HEAD, Packed((*GAP, STRANGE)), *REST))),
        {"duplicates": 1},
        proven=COUNT + 2,
    ),
    Scene(
        "a strange one in the gap",
        _aligned(lambda s: s.write((*HEAD, Packed((*GAP, ConsumedRecord(b"y", b"y", 1))), *REST))),
        {"foreign": 1},
        proven=COUNT + 2,
    ),
    Scene(
        "one displaced by one",
        lambda one, two: (
            one.write(HEAD),
            one.transaction(GAP[:1]),
            one.transaction(GAP[1:]),
            one.write(REST),
            two.write((*HEAD, Packed(tuple(GAP)))),
            two.transaction([STRANGE], abort=True),
            two.write(REST),
        ),
        {"altered": 1},
        ("offset",),
        proven=COUNT + 1,
    ),
    Scene(
        "neighbours swapped",
        _aligned(
            lambda s: (
                s.write(edited(edited(HEAD, 10, records_of(HEAD)[11]), 11, records_of(HEAD)[10])),
                s.transaction(GAP),
                s.write(REST),
            )
        ),
        {"altered": 2},
        ("offset",),
        proven=COUNT,
    ),
    Scene(
        "a value altered",
        _aligned(
            lambda s: (
                s.write(HEAD),
                s.transaction(GAP),
                s.write(changed(REST, 7, value=b"!")),
            )
        ),
        {"altered": 1},
        ("value",),
        proven=COUNT + 1,
    ),
    Scene(
        "aborted where the source has records",
        _aligned(lambda s: (s.write(HEAD), s.transaction(GAP, abort=True), s.write(REST))),
        {"missing": 2},
        proven=COUNT,
    ),
)


@pytest.fixture(scope="module")
def judged(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Judged]:
    """One proof of everything."""
    settings = settings_of(kafka_pair)
    name = f"mutated-{time.monotonic_ns()}"
    topics = {layout: f"{name}-{number}" for number, layout in enumerate((*LAYOUTS, ALIGNED))}
    partitions = dict(zip(topics, (len(MUTATIONS) + len(SCENES), len(MUTATIONS), len(IN_PLACE)), strict=True))
    for each in settings.values():
        with Admin(each) as admin:
            for layout, topic in topics.items():
                admin.create_topic(topic, partitions[layout], 1, {"retention.ms": "-1"})
    for layout in LAYOUTS:
        copies = dict(enumerate(copy_of(mutation, layout) for mutation in MUTATIONS))
        append(settings["onprem"], topics[layout], {number: SOURCES[number] for number in copies})
        append(settings["cloud"], topics[layout], copies)
    left_open = []
    for layout, first, scenes in ((LAYOUTS[0], len(MUTATIONS), SCENES), (ALIGNED, 0, IN_PLACE)):
        for number, scene in enumerate(scenes, first):
            done = scene.write(*(Side(settings[alias], topics[layout], number) for alias in ("onprem", "cloud")))
            left_open += [each for each in done or () if isinstance(each, Producer)]

    def alignment(_settings: ConnectionSettings, flow: str) -> dict[tuple[str, int], PartitionAlignment]:
        runs = {(topics[layout], number): ((0, 0),) for layout in topics for number in range(partitions[layout])}
        runs |= {(topics[LAYOUTS[0]], number): scene.runs for number, scene in enumerate(SCENES, len(MUTATIONS))}
        return {
            place: PartitionAlignment(OffsetMap.of(pairs))
            for place, pairs in runs.items()
            if (place[0] == topics[ALIGNED]) == (flow == ALIGNED)
        }

    out = tmp_path_factory.mktemp("mutated")
    summary = prove_flows(
        plan_of(settings, topics), ProofRequest(wait=0.0, chunk=CHUNK), out, alignment=alignment, session=lambda: spark
    )
    chunks, differences = (pq.read_table(out / f"{name}.parquet").to_pylist() for name in ("chunks", "diffs"))
    yield Judged(summary, chunks, differences, topics)
    for each in left_open:
        each.abort_transaction(60)


SOURCES = tuple(packed(a_log(100 + number, COUNT)) for number in range(len(MUTATIONS)))


def copy_of(mutation: Mutation, layout: str) -> Log:
    number = MUTATIONS.index(mutation)
    log = mutation.apply(SOURCES[number], SOURCES[number - 1])
    return log if layout == LAYOUTS[0] else packed(records_of(log), (17, 3), "gzip")


def plan_of(settings: dict[str, ConnectionSettings], topics: dict[str, str]) -> Plan:
    clusters = tuple(PlanCluster(alias, each.bootstrap) for alias, each in settings.items())
    literal = {layout: Selector("literal", topic) for layout, topic in topics.items()}
    flows = (
        PlanFlow("plain", "onprem", "cloud", TopicSelection(tuple(literal[layout] for layout in LAYOUTS))),
        PlanFlow(ALIGNED, "onprem", "cloud", TopicSelection((literal[ALIGNED],)), offsets="aligned"),
    )
    return seal_plan(Plan("mutations", clusters, flows))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a proof said: its summary, the rows of its chunks and of its differences, and the topics by their layout."""

    summary: dict[str, Any]
    chunks: list[dict[str, Any]]
    differences: list[dict[str, Any]]
    topics: dict[str, str]

    def counts(self, layout: str, number: int) -> dict[str, int]:
        [found] = self._of(self.summary["window"]["partitions"], layout, number)
        return found

    def components(self, layout: str, number: int) -> set[str]:
        return {name for each in self._of(self.differences, layout, number) for name in each["components"]}

    def can_compare_batches(self, layout: str, number: int) -> set[int]:
        """The chunks that were equal batch by batch, by their numbers."""
        rows = self._of(self.chunks, layout, number)
        return {
            round(row["source_start"] / CHUNK) for row in rows if (row["status"], row["by"]) == ("equal", "batches")
        }

    def _of(self, rows: list[dict[str, Any]], layout: str, number: int) -> list[dict[str, Any]]:
        return [row for row in rows if (row["topic"], row["partition"]) == (self.topics[layout], number)]


def classes(counts: dict[str, int]) -> dict[str, int]:
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_reported_as_its_class_and_count(judged: Judged, mutation: Mutation, layout: str) -> None:
    number = MUTATIONS.index(mutation)
    counts = judged.counts(layout, number)
    assert (classes(counts), counts["proven"]) == (mutation.found, mutation.proven)
    assert judged.components(layout, number) == set(mutation.components)
    assert judged.can_compare_batches(layout, number) == by_batches(SOURCES[number], copy_of(mutation, layout))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_transactions(judged: Judged, scene: Scene) -> None:
    number = len(MUTATIONS) + SCENES.index(scene)
    counts = judged.counts(LAYOUTS[0], number)
    assert (classes(counts), counts["proven"]) == (scene.found, scene.proven)
    assert judged.components(LAYOUTS[0], number) == set(scene.components)


@pytest.mark.parametrize("scene", IN_PLACE, ids=lambda scene: scene.name)
def test_aligned_copies_are_judged_by_offset(judged: Judged, scene: Scene) -> None:
    number = IN_PLACE.index(scene)
    counts = judged.counts(ALIGNED, number)
    assert (classes(counts), counts["proven"]) == (scene.found, scene.proven)
    assert judged.components(ALIGNED, number) == set(scene.components)


def test_the_sum_of_all(judged: Judged) -> None:
    found = [*(mutation.found for _ in LAYOUTS for mutation in MUTATIONS), *(s.found for s in (*SCENES, *IN_PLACE))]
    for kind in KINDS:
        assert judged.summary[kind] == sum(each.get(kind, 0) for each in found)
    assert (judged.summary["verdict"], judged.summary["exit_code"], judged.summary["exact"]) == ("different", 1, True)
    assert judged.summary["unproven"] == sum(judged.summary[kind] for kind in KINDS if kind != "pending")
    print(f"\n{len(found)} partitions proven in {judged.summary['seconds']} s")
