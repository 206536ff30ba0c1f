"""The oracle: one record into every topic of in-memory Kafka clusters, and every flow copying batches until nothing
moves.

Only the rules of replication are in here: what a flow selects and how it names it, that it creates every topic it
selects, one producer id for each (flow, path), what guard and `forward` skip. Batches are fetched, sifted, rewritten
and produced as the data plane does it (`replicator.batch.batch_selection.select_batches`,
`replicator.batch.header_rewrite.rewrite_header`), and the broker's own checks answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.topology.pump.outcome import MAX_NAME, Outcome, Place
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.wire.messages import FetchPartition, ProducePartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.topology.plan import PlanFlow

MAX_TOPICS = 400  # in all clusters: more than this come only of names that grow; on two flows they double each round
NOW = 1_700_000_000_000
ONE_BY_ONE = RepackTerms(small=0)  # a batch a record: merged ones would reach behind the round's end
Stand = tuple[str, str, int]  # cluster, topic, producer id: whatever happens next depends on nothing else
Spot = tuple[str, str, int]  # cluster, topic, offset


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes with a producer id: the flow, and the clusters that its records are known to have been in."""

    flow: str
    path: frozenset[str]


class Pump:
    def __init__(self, flows: Sequence[PlanFlow]) -> None:
        self.flows = [flow for flow in flows if flow.source != flow.target]
        aliases = sorted({alias for flow in self.flows for alias in (flow.source, flow.target)})
        self.clusters = {alias: FakeCluster(alias, clock=lambda: NOW) for alias in aliases}
        self.wires: dict[str, FakeWire] = {alias: cluster.wire() for alias, cluster in self.clusters.items()}
        self.producers: dict[tuple[str, int], Producer] = {}
        self.ids: dict[Producer, int] = {}
        self.sequences: dict[Stand, int] = {}
        self.positions: dict[tuple[str, str], int] = {}
        self.ways: dict[Spot, frozenset[Stand]] = {}  # where each copied batch has stood before, and stands
        self.outcome = Outcome()

    def run(self, begun: Sequence[Place]) -> Outcome:
        """Until nothing moves, a record is again where it was under the same producer id, or a name is too long."""
        for alias, name in begun:
            if alias not in self.clusters:  # no flow touches it
                continue
            self.clusters[alias].create_topic(name, 1)
            self.clusters[alias].produce(name, 0, [f"{alias}/{name}".encode()], timestamp=NOW)
        while self._round() and self.outcome.settled:
            pass
        if self.outcome.settled:
            self._count()
        return self.outcome

    def _round(self) -> bool:
        """Every flow copies what was there when the round began, so records move one hop; whether anything did."""
        there = {
            alias: {name: cluster.log(name, 0).end for name in sorted(cluster.topics())}
            for alias, cluster in self.clusters.items()
        }
        copied = created = False
        for flow in self.flows:
            for name, end in there[flow.source].items():
                if not flow.selects(name):
                    continue
                arriving = flow.target_topic(name)
                if len(arriving) > MAX_NAME or sum(map(len, there.values())) > MAX_TOPICS:
                    self.outcome.finite = False
                    return False
                if self.clusters[flow.target].topic(arriving) is None:
                    self.clusters[flow.target].create_topic(arriving, 1)
                    created = True
                copied |= self._copy(flow, name, arriving, end)
                if not self.outcome.ends:
                    return False
        self.outcome.hops += copied
        return copied or created

    def _copy(self, flow: PlanFlow, name: str, arriving: str, end: int) -> bool:
        topic = self.clusters[flow.source].topic(name)
        assert topic is not None
        position = self.positions.get((flow.id, name), 0)
        copied = False
        while position < end:
            asked = FetchPartition(topic.topic_id, 0, position)
            [answer] = self.wires[flow.source].fetch((asked,), max_wait_ms=0, min_bytes=0)
            skipped = partial(self._skipped, flow)
            found = select_batches(answer.records, position, answer.aborted, leave_out=skipped, terms=ONE_BY_ONE)
            for batch in found.batches:
                if batch.base < end:
                    self._produce(flow, (flow.source, name, batch.base), arriving, batch)
                    copied = True
            position = min(found.position, end)
        self.positions[flow.id, name] = position
        return copied

    def _skipped(self, flow: PlanFlow, batch: RawBatch) -> bool:
        """The loop guard, and `forward: local`."""
        producer = self.producers.get((flow.source, batch.producer_id))
        if producer is None:
            return False  # an ordinary producer
        return flow.forward == "local" or (flow.guard == "producer_id" and flow.target in producer.path)

    def _produce(self, flow: PlanFlow, spot: Spot, arriving: str, batch: RawBatch) -> None:
        known = self.producers.get((flow.source, batch.producer_id))
        path = known.path if known is not None and flow.guard == "producer_id" else frozenset({flow.source})
        producer = Producer(flow.id, path | {flow.target})
        stand = (flow.target, arriving, self._producer_id(flow, producer))
        before = self.ways.get(spot, frozenset())
        if stand in before:
            self.outcome.ends = False  # from here on it does again what it did
            return
        topic = self.clusters[flow.target].topic(arriving)
        assert topic is not None
        sequence = self.sequences.get(stand, 0)
        head = rewrite_header(batch.data[:BATCH_HEADER_BYTES], producer_id=stand[2], epoch=0, sequence=sequence)
        wire = self.wires[flow.target]
        wire.send_produce((ProducePartition(topic.topic_id, 0, (head, batch.data[BATCH_HEADER_BYTES:])),))
        [answer] = wire.receive_produce()
        assert answer.error == 0, answer
        self.sequences[stand] = sequence + batch.records
        self.ways[flow.target, arriving, answer.base_offset] = before | {stand}

    def _producer_id(self, flow: PlanFlow, producer: Producer) -> int:
        issued = self.ids.get(producer)
        if issued is None:
            issued = self.ids[producer] = self.clusters[flow.target].issue_producer_id()
            self.producers[flow.target, issued] = producer
        return issued

    def _count(self) -> None:
        for alias, cluster in self.clusters.items():
            for name in cluster.topics():
                self.outcome.names.add((alias, name))
                for record in cluster.records(name, 0):
                    born, _, topic = (record.value or b"").decode().partition("/")
                    self.outcome.arrivals[(born, topic), (alias, name)] += 1
                for kept in cluster.log(name, 0).batches:
                    producer = self.producers.get((alias, kept.header.producer_id))
                    if producer is not None:
                        self.outcome.writers.setdefault((alias, name), set()).add(producer.flow)


def pump(flows: Sequence[PlanFlow], begun: Sequence[Place]) -> Outcome:
    return Pump(flows).run(begun)
