"""What cannot be proven gets its word and exit code, says what, where and what to do, and is never "different"."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.replicator.real import settings_of
from tests.spark.logs import a_log, append, packed
from tests.spark.memory import Stored
from tests.spark.test_spark_inferred import proof_of
from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.free_ports import find_free_ports
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, OffsetMap, OffsetRun
from watershed.spark.errors import NotReadable
from watershed.spark.judging.coverage_warnings import describe_flows_left_out
from watershed.spark.judging.flow_observation import FlowFacts, PartitionAlignment
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair
from watershed.spark.judging.source_truncation import exclude_truncated_ends
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.reading.fetch_answers import OffsetsExpired
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.verify import main
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

NEVER = ("missing", "altered", "reordered", "duplicates", "foreign")

# --- in memory: what can happen while a range is read


@pytest.mark.parametrize(
    "error",
    [
        NotReadable("t-0 on cloud: corrupt record batch at offset 7: checksum differs"),
        NotReadable("t-0 on cloud: record format v1 at offset 0 is not supported by the raw reader"),
        NotReadable("t-0 on cloud: the topic was deleted or made anew while it was read"),
        NotReadable("t-0 on cloud: offset 9 is beyond its end; was the log truncated?"),
        Unreachable.at("cloud", ("127.0.0.1:1",), "Connection refused"),
    ],
    ids=["corrupt", "old format", "recreated", "truncated", "unreachable"],
)
def test_what_happens_while_it_is_read_is_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    log, whole = packed(a_log(1, 200)), Stored.answers
    reads: list[int] = []

    def read(self: Stored, address: Any, span: Any, *more: Any, **options: Any) -> Iterator[Any]:
        reads.append(1)
        if address.settings.alias == "cloud" and len(reads) > 2:
            raise error
        return whole(self, address, span, *more, **options)

    monkeypatch.setattr(Stored, "answers", read)
    proof, _ = proof_of(log, log)
    assert (proof.judgement.verdict, proof.judgement.total.difference_count) == ("error", 0)
    assert str(error) in proof.judgement.errors[0]


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_what_expires_before_or_while_it_is_read_is_not_compared_or_unverifiable(side: int) -> None:
    log = packed(a_log(1, 200))
    proof, _ = proof_of(log, log, starts=(80, 0) if side == 0 else (0, 80))
    assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", 120)


def test_what_expires_while_it_is_read_is_unverifiable(monkeypatch: pytest.MonkeyPatch) -> None:
    log, whole = packed(a_log(1, 200)), Stored.answers
    reads: list[int] = []

    def read(self: Stored, address: Any, span: Any, *more: Any, **options: Any) -> Iterator[Any]:
        reads.append(1)
        if address.settings.alias == "cloud" and len(reads) > 2 and span.start < 50:
            raise OffsetsExpired(50)
        return whole(self, address, span, *more, **options)

    monkeypatch.setattr(Stored, "answers", read)
    proof, _ = proof_of(log, log)
    assert (proof.judgement.verdict, proof.judgement.total.difference_count) == ("incomplete", 0)
    assert proof.judgement.total.unverifiable > 0
    assert proof.judgement.total.unverifiable + proof.judgement.total.proven == 200


# --- real brokers

_TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: wrong-use, owner: test}}
clusters:
  onprem: {{bootstrap: ["{source}"], security: {{protocol: PLAINTEXT}}{pinned}}}
  cloud: {{bootstrap: ["{target}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: wrong-use
    topics: {{include: ["{topic}"]}}
    workers: {{engine: process}}
"""


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--flow", "nobody"], r"topology wrong-use has no flow nobody; it has onprem-to-cloud-wrong-use"),
        (["--topics", "nothing"], r"flow onprem-to-cloud-wrong-use does not select topic nothing"),
        ([], r"there is no ledger of flow onprem-to-cloud-wrong-use on cloud.*`topology status`"),
        (["--since", "/nowhere/summary.json"], r"cannot read the earlier summary /nowhere/summary.json"),
        (["--from-start"], r"--from-start is for --foreign copies"),
        (["--level", "L3", "--foreign"], r"level L3 tries groups' positions by the flow's own ledger"),
        (["pinned"], r"belong to cluster \S+, but clusters.onprem.cluster_id pins AAAAAAAAAAAAAAAAAAAAAA"),
        (["no file"], r"no file|cannot be read|No such file"),
        pytest.param(
            ["unreachable"],
            r"cluster onprem does not answer at 127.0.0.1:\d+.*Check that its brokers run",
            marks=pytest.mark.slow,  # 15 s, which is the patience of every request
        ),
    ],
    ids=lambda each: " ".join(each) or "no ledger" if isinstance(each, list) else "",
)
def test_wrong_use_is_an_error_with_a_summary(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(kafka_pair)
    source, target = (settings[alias].bootstrap[0] for alias in ("onprem", "cloud"))
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, 1, 1, {"retention.ms": "-1"})  # the records are old
    append(settings["onprem"], topic_name, {0: packed(a_log(1, 20))})
    pinned = ", cluster_id: AAAAAAAAAAAAAAAAAAAAAA" if asked == ["pinned"] else ""
    if asked == ["unreachable"]:
        source = f"127.0.0.1:{find_free_ports(1)[0]}"
    path = tmp_path / "wrong-use.yaml"
    if asked != ["no file"]:
        path.write_text(_TOPOLOGY.format(source=source, target=target, topic=topic_name, pinned=pinned))
    options = asked if asked and asked[0].startswith("--") else []
    out = tmp_path / "proof"
    assert main(["--topology", str(path), "--out", str(out), "--wait", "0", *options]) == 2
    document = json.loads((out / "summary.json").read_text())
    assert (document["verdict"], document["exit_code"]) == ("error", 2)
    assert re.search(said, document["error"], re.DOTALL), document["error"]
    assert document["error"] in capsys.readouterr().err


class Scene:
    """Topics of one flow, and what says which of their records belong together."""

    def __init__(self, settings: dict[str, ConnectionSettings], spark: SparkSession, directory: Path) -> None:
        self.settings, self.spark, self.directory = settings, spark, directory
        self.topics: list[str] = []
        self.alignment: dict[tuple[str, int], PartitionAlignment] = {}

    def topic(self, name: str, source: int = 1, target: int = 1, records: tuple[int, int] = (20, 20)) -> str:
        for alias, partitions, count in zip(("onprem", "cloud"), (source, target), records, strict=True):
            if partitions:
                with Admin(self.settings[alias]) as admin:
                    admin.create_topic(name, partitions, 1, {"retention.ms": "-1"})
                append(self.settings[alias], name, {0: packed(a_log(1, 20)[:count])})
        for number in range(max(source, target)):
            self.alignment[name, number] = PartitionAlignment(OffsetMap.of([(0, 0)]))
        self.topics.append(name)
        return name

    def verify(self, **request: Any) -> dict[str, Any]:
        flow = PlanFlow(
            "onprem-to-cloud",
            "onprem",
            "cloud",
            TopicSelection(tuple(Selector("literal", topic) for topic in self.topics)),
        )
        known = tuple(PlanCluster(alias, each.bootstrap) for alias, each in self.settings.items())
        plan: Plan = seal_plan(Plan("wrong-use", known, (flow,)))
        return prove_flows(
            plan,
            ProofRequest(**({"wait": 0.0} | request)),
            self.directory / f"{time.monotonic_ns()}",
            alignment=lambda _settings, _flow: self.alignment,
            session=lambda: self.spark,
        )


@pytest.mark.kafka
@pytest.mark.spark
def test_what_cannot_be_compared_has_its_word(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    scene = Scene(settings_of(kafka_pair), spark, tmp_path)
    fine = scene.topic(f"{topic_name}-fine")
    empty = scene.topic(f"{topic_name}-empty", records=(0, 0))
    absent = scene.topic(f"{topic_name}-absent", target=0)
    fewer = scene.topic(f"{topic_name}-fewer", source=2)
    append(scene.settings["onprem"], fewer, {1: packed(a_log(1, 5))})
    broken = scene.topic(f"{topic_name}-broken")
    scene.alignment[broken, 0] = PartitionAlignment(
        BrokenOffsetMap((OffsetRun(0, 0),), "the offset map contradicts itself")
    )
    made_anew = {side: scene.topic(f"{topic_name}-anew-{side}") for side in (0, 1)}
    for side, topic in made_anew.items():
        ids = [_topic_id(scene, alias, topic) for alias in ("onprem", "cloud")]
        ids[side] = uuid.uuid4()
        scene.alignment[topic, 0] = PartitionAlignment(OffsetMap.of([(0, 0)]), (ids[0], ids[1]))
    behind = scene.topic(f"{topic_name}-behind", records=(20, 13))
    more = scene.topic(f"{topic_name}-more", target=2)
    append(scene.settings["cloud"], more, {1: packed(a_log(1, 5))})
    gone = scene.topic(f"{topic_name}-gone", source=0)
    document = scene.verify()
    assert (document["verdict"], document["exit_code"]) == ("incomplete", 3)
    assert not any(document[name] for name in NEVER)
    lines = {line["topic"]: line for line in document["topics"]}
    found = {topic: (line["proven"], line["pending"], line["unverifiable"]) for topic, line in lines.items()}
    assert found == {
        fine: (20, 0, 0),
        empty: (0, 0, 0),
        absent: (0, 20, 0),
        fewer: (20, 5, 0),
        broken: (0, 20, 0),
        made_anew[0]: (0, 20, 0),
        made_anew[1]: (0, 20, 0),
        behind: (13, 7, 0),
        more: (20, 0, 0),
    }
    findings = "\n".join(document["findings"])
    for said in (
        f"topic {absent} is missing on cloud, or not shown to this user",
        f"topic {fewer} has 1 partitions on cloud, 2 on onprem",
        f"{broken}-0: its ledger cannot be used: the offset map contradicts itself",
        f"{made_anew[0]}-0: its topic was deleted and made anew on onprem",
        f"{made_anew[1]}-0: its topic was deleted and made anew on cloud",
        f"{more}-1 on cloud: offsets 0 to 4 stand in a partition that the source does not have on onprem",
        f"topic {gone} was copied to cloud, and onprem does not show it",
    ):
        assert said in findings


def test_flows_that_a_whole_proof_leaves_out_are_named() -> None:
    running, paused = (
        PlanFlow(f"a-to-{name}", "a", name, TopicSelection((Selector("literal", "t"),)), state=state)
        for name, state in (("b", "running"), ("c", "paused"))
    )
    assert describe_flows_left_out((running, paused), [running], named=False) == [
        "flow a-to-c: declared paused, nothing of it was compared"
    ]
    assert describe_flows_left_out((running, paused), [running], named=True) == []


def _topic_id(scene: Scene, alias: str, topic: str) -> uuid.UUID:
    with Admin(scene.settings[alias]) as admin:
        found = admin.topic(topic)
    assert found is not None
    return found.topic_id


@contextmanager
def _open_transaction(settings: ConnectionSettings, topic: str) -> Iterator[None]:
    own = {"transactional.id": topic, "linger.ms": 0, "transaction.timeout.ms": 600_000}  # ours to end
    into = Producer(settings.librdkafka(own))
    into.init_transactions(60)
    into.begin_transaction()
    into.produce(topic, b"not yet", key=b"k")
    assert into.flush(60) == 0
    try:
        yield
    finally:
        into.abort_transaction(60)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("side", ["onprem", "cloud"])
def test_what_a_transaction_holds_is_beyond_the_proof(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession, side: str
) -> None:
    scene = Scene(settings_of(kafka_pair), spark, tmp_path)
    topic = scene.topic(topic_name, records=(20, 15) if side == "cloud" else (20, 20))
    with _open_transaction(scene.settings[side], topic):
        document, final = scene.verify(), scene.verify(final=True)
    assert not any(document[name] + final[name] for name in NEVER)
    assert (document["verdict"], document["pending"]) == (("proven", 0) if side == "onprem" else ("incomplete", 5))
    assert final["verdict"] == "incomplete"
    held = 20 if side == "onprem" else 15
    assert any("transactions were open" in n and f"0@{held})" in n for n in document["not_compared"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectionSettings]:
    """A broker whose ACLs apply to us; without one all is allowed."""
    directory = tmp_path_factory.mktemp("guarded")
    try:
        acls = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
        found = clusters.start_clusters(directory, ["guarded"], settings=acls)
        yield ConnectionSettings("guarded", (found.clusters["guarded"].bootstrap,))
    finally:
        clusters.end_clusters(directory)


def allow_only(settings: ConnectionSettings, topic: str, *operations: str) -> None:
    client = AdminClient(settings.librdkafka())
    where = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    bindings = [AclBinding(*where, AclOperation[each], AclPermissionType.ALLOW) for each in operations]
    for future in client.create_acls(bindings).values():
        future.result(60)


@pytest.mark.kafka
@pytest.mark.spark
def test_without_a_right_nothing_is_different(
    kafka_pair: Lab, guarded: ConnectionSettings, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    for side, other in (("onprem", "cloud"), ("cloud", "onprem")):
        settings = {side: replace(guarded, alias=side), other: settings_of(kafka_pair)[other]}
        scene = Scene(settings, spark, tmp_path)
        unread = scene.topic(f"{topic_name}-{side}-unread")
        allow_only(guarded, unread, "DESCRIBE", "DESCRIBE_CONFIGS")
        document = scene.verify()
        assert (document["verdict"], document["exit_code"]) == ("error", 2), document
        assert not any(document[name] for name in NEVER)
        assert unread in document["error"]
        assert re.search("(?i)authori[sz]", document["error"]), document["error"]
        hidden = Scene(settings, spark, tmp_path)
        topic = hidden.topic(f"{topic_name}-{side}-hidden")
        allow_only(guarded, topic, "DESCRIBE_CONFIGS")
        document = hidden.verify()
        assert (document["verdict"], document["exit_code"]) == ("incomplete", 3), document
        assert not any(document[name] for name in NEVER)


@pytest.mark.parametrize(("ours", "all_of_it", "expected"), [(8, 8, (12, 8)), (3, 8, (20, 0)), (0, 8, (20, 0))])
def test_a_source_that_lost_its_end_makes_its_records_unverifiable(
    ours: int, all_of_it: int, expected: tuple[int, int]
) -> None:
    """An unclean election leaves 12 of the 20 records that were copied. Somebody else's records there stay foreign."""
    place, ids = PartitionPair("onprem-to-cloud", "t", "t", 0), (uuid.UUID(int=1), uuid.UUID(int=2))
    admin: Any = None
    flow = PlanFlow("onprem-to-cloud", "onprem", "cloud", TopicSelection((Selector("literal", "t"),)))
    facts = FlowFacts(flow, admin, admin, ConnectionSettings("cloud", ("127.0.0.1:1",)))
    seen = ObservedPartition(place, LogRange(0, 12), LogRange(0, 20), OffsetMap.of([(0, 0)]), 12, ids)

    def count(unit: RangeRequest) -> int:
        assert (unit.start, unit.end, unit.cluster) == (12, 20, "cloud")
        return ours if unit.only == (7,) else all_of_it

    [found] = exclude_truncated_ends(facts, [seen], lambda: (7,), count)
    assert (found.target.end, facts.lost.get(place, 0)) == expected
    assert bool(facts.blocks) == bool(facts.lost)
    assert all("lost its end (an unclean leader election); 8 records of the copy" in block for block in facts.blocks)
    fine = replace(seen, source=LogRange(0, 20), barrier=20)
    assert exclude_truncated_ends(facts, [fine], lambda: (), count) == [fine]
