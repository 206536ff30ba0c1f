"""Request logs as brokers of several releases wrote them, and what they may look like at worst."""

from __future__ import annotations

import contextlib
import gzip
import json
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters import request_log
from watershed.clusters.request_log import read_request_log
from watershed.clusters.request_log_line import LoggedRequest, UnreadableLine, parse_request_line
from watershed.topology.client_inventory import ClusterClients, SeenClient, SeenSpan
from watershed.topology.errors import UnreadableInventory

SAMPLES = Path(__file__).with_name("request_log_samples")
ORDERS = "p5xzWSSJStKksKr6DtNomQ"  # the id of `orders` in the sample of 4.3.1
HOSTILE = 'web "x" <b>'


def _clients(found: ClusterClients) -> dict[str, SeenClient]:
    return {each.client_id or "": each for each in found.clients}


@pytest.mark.parametrize("sample", ["2.4.1-debug", "2.4.1-trace", "2.8.2-debug", "4.3.1-debug"])
def test_clients_of_real_logs(sample: str) -> None:
    found = read_request_log(SAMPLES / f"{sample}.log", "onprem", topic_ids={ORDERS: "orders"})
    seen = _clients(found)
    assert {each.principal for each in found.clients} == {"User:ANONYMOUS"}
    assert (set(seen["billing-1"].reads), set(seen["billing-1"].writes)) == ({"orders"}, set())
    assert seen["billing-1"].groups == ("billing",)
    assert (set(seen[HOSTILE].reads), set(seen[HOSTILE].writes)) == (set(), {"orders"})
    assert set(seen["plain"].writes) == {"pay_ments"}
    assert (seen["tx"].transactional_ids, seen["tx"].producer_ids) == (("tx-1",), (1,))
    assert set(seen["tx"].writes) == {"orders"}
    assert seen["plain"].hosts == ("127.0.0.1",)
    software = () if sample.startswith("2.4") else ("confluent-kafka-python 2.16.1-rdkafka-2.16.0",)
    assert seen["plain"].software == software  # KIP-511 came with 2.4, and librdkafka sends it to newer brokers
    [observation] = found.observations
    assert (observation.failed, observation.gaps, observation.origin) == (0, (), f"request_log_samples/{sample}.log")
    assert not any(name.startswith(("AddPartitionsManager", "broker-")) for name in seen)


def test_topics_that_have_an_id_only() -> None:
    found = read_request_log(SAMPLES / "4.3.1-debug.log", "onprem")
    assert f"id:{ORDERS}" in _clients(found)["billing-1"].reads
    assert found.observations[0].not_seen == (
        "names of 1 topics that the log has by id only: neither the cluster nor an inventory has them",
    )


def line(
    api: str = "PRODUCE",
    ms: str = "2026-11-28 01:15:17,347",
    response: object = None,
    request: object = None,
    **more: object,
) -> str:
    """A line as Kafka 4 writes it."""
    document = {
        "isForwarded": False,
        "requestHeader": {"requestApiKeyName": api, "clientId": more.pop("client_id", "web")},
        "request": request if request is not None else {"topicData": [{"name": "orders", "partitionData": []}]},
        "response": response if response is not None else {},
        "connection": more.pop("connection", "10.0.0.1:9092-10.0.0.9:51000-0-3"),
        "principal": more.pop("principal", "User:web"),
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "3.7.0"},
    }
    return f"[{ms}] DEBUG Completed request:{json.dumps(document)} (kafka.request.logger)\n"


def parse(text: str) -> LoggedRequest:
    found = parse_request_line(text, UTC)
    assert found is not None
    return found


def test_a_line() -> None:
    found = parse(line())
    assert (found.principal, found.client_id, found.software) == ("User:web", "web", "apache-kafka-java 3.7.0")
    assert (found.address, found.host, found.writes, found.reads) == ("10.0.0.1:9092", "10.0.0.9", ("orders",), ())
    assert found.ms == 1_795_828_517_347


@pytest.mark.parametrize(
    ("connection", "address", "host"),
    [
        ("kafka-1.example:9092-10.1.1.1:4000-12", "kafka-1.example:9092", "10.1.1.1"),
        ("::1:9092-fe80:0:0:0:0:0:0:1%eth0:4000-12-1", "::1:9092", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_connections(connection: str, address: str, host: str) -> None:
    found = parse(line(connection=connection))
    assert (found.address, found.host) == (address, host)


def test_what_is_refused_is_not_written() -> None:
    request = {"topicData": [{"name": "orders"}, {"name": "secret"}]}
    rows = [
        {"name": "orders", "partitionResponses": [{"errorCode": 0}]},
        {"name": "secret", "partitionResponses": [{"errorCode": 29}, {"errorCode": 29}]},
    ]
    found = parse(line(request=request, response={"responses": rows}))
    assert (found.writes, found.refused) == (("orders",), ("secret",))


@pytest.mark.parametrize(
    ("api", "request_", "reads"),
    [
        ("FETCH", {"replicaId": -1, "topics": [{"topicId": "abc", "partitions": []}]}, ("id:abc",)),
        ("SHARE_FETCH", {"groupId": "g", "topics": [{"topicId": "abc"}]}, ("id:abc",)),
        ("CONSUMER_GROUP_HEARTBEAT", {"groupId": "g", "subscribedTopicNames": ["a", "b"]}, ("a", "b")),
        ("OFFSET_COMMIT", {"groupId": "g", "generationIdOrMemberEpoch": 3, "topics": [{"name": "a"}]}, ("a",)),
        ("OFFSET_COMMIT", {"groupId": "g", "generationIdOrMemberEpoch": -1, "topics": [{"name": "a"}]}, ()),
        ("LIST_OFFSETS", {"topics": [{"name": "a"}]}, ()),
    ],
)
def test_what_counts_as_read(api: str, request_: object, reads: tuple[str, ...]) -> None:
    found = parse(line(api, request=request_))
    assert (found.reads, found.writes) == (reads, ())


@pytest.mark.parametrize(
    ("api", "generation", "group"),
    [
        ("HEARTBEAT", 1, "g"),
        ("JOIN_GROUP", -1, "g"),
        ("OFFSET_COMMIT", 1, "g"),
        ("OFFSET_COMMIT", -1, None),  # a tool that resets offsets
        ("OFFSET_FETCH", -1, None),  # whoever asks for a group's lag
    ],
)
def test_only_members_are_of_a_group(api: str, generation: int, group: str | None) -> None:
    assert parse(line(api, request={"groupId": "g", "generationId": generation})).group == group


@pytest.mark.parametrize(
    "text",
    [
        line("FETCH", request={"replicaId": 2, "topics": [{"topic": "a"}]}),
        line("FETCH", request={"replicaState": {"replicaId": 2, "replicaEpoch": 1}, "topics": [{"topicId": "a"}]}),
        line("ADD_PARTITIONS_TO_TXN", request={"transactions": [{"topics": [{"name": "a"}]}]}),
        line("BROKER_HEARTBEAT"),
        line("API_VERSIONS"),
        "[2026-11-28 01:15:17,347] INFO Something else (kafka.server)\n",
    ],
)
def test_what_brokers_ask_each_other_is_no_client(text: str) -> None:
    assert parse_request_line(text, UTC) is None


def test_zones() -> None:
    berlin = parse_request_line(line(ms="2026-07-01 12:00:00,000"), ZoneInfo("Europe/Berlin"))
    own = parse_request_line(line(ms="2026-07-01T10:00:00.000Z"), ZoneInfo("Europe/Berlin"))
    offset = parse_request_line(line(ms="2026-07-01 15:30:00,000+0530"), UTC)
    assert berlin is not None
    assert own is not None
    assert offset is not None
    assert berlin.ms == own.ms == offset.ms


OLD = (
    "[2026-11-28 01:15:17,347] DEBUG Completed request:RequestHeader(apiKey=PRODUCE, apiVersion=8, clientId={}, "
    "correlationId=3) -- {{acks=-1,timeout=30000,partitionSizes=[orders-1=70,b.c-0=7]}},response:{{responses=[]}} from "
    "connection 10.0.0.1:9092-10.0.0.2:4000-4;totalTime:1,securityProtocol:SASL_SSL,principal:User:CN=web,O=x,"
    "listener:SASL{}"
)


def test_text_lines() -> None:
    more = ",clientInformation:ClientInformation(softwareName=apache-kafka-java, softwareVersion=2.6.0)"
    found = parse(OLD.format("web", more))
    assert (found.principal, found.client_id, found.writes) == ("User:CN=web,O=x", "web", ("orders", "b.c"))
    assert found.software == "apache-kafka-java 2.6.0"
    assert parse(OLD.format("a, b <i>", "")).client_id == "a, b <i>"


def test_a_client_id_that_imitates_the_header_is_not_believed() -> None:
    hostile = "x, correlationId=1) -- {topics=[{topic=stolen,"
    with pytest.raises(UnreadableLine, match="cannot be told apart"):
        parse_request_line(OLD.format(hostile, ""), UTC)
    found = parse(line(client_id=hostile))  # JSON escapes: there it is only a name
    assert (found.client_id, found.writes) == (hostile, ("orders",))


@pytest.mark.parametrize(
    "text",
    [
        line()[:200],
        "[2026-11-28 01:15:17,347] DEBUG Completed request:{}",
        "[2026-11-28 01:15:17,347] DEBUG Completed request:RequestHeader(",
        line().replace("[2026-11-28 01:15:17,347]", "[yesterday]"),
        line().replace("[2026-11-28 01:15:17,347]", "[2026-99-28 01:15:17,347]"),
        line(connection="nowhere"),
    ],
)
def test_damaged_lines_are_refused(text: str) -> None:
    with pytest.raises(UnreadableLine):
        parse_request_line(text, UTC)


@given(st.text(max_size=300), st.sampled_from(["", "{", '{"requestHeader": ', "RequestHeader(apiKey=FETCH, "]))
def test_no_line_breaks_the_reader(noise: str, begin: str) -> None:
    with contextlib.suppress(UnreadableLine):
        parse_request_line(f"[2026-11-28 01:15:17,347] DEBUG Completed request:{begin}{noise}", UTC)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) |
       st.dictionaries(st.sampled_from(["topics", "topicData", "name", "topicId", "replicaId", "partitions"]), inner,
                       max_size=3), max_leaves=12))  # fmt: skip
def test_no_document_breaks_the_reader(value: object) -> None:
    for api in ("FETCH", "PRODUCE"):
        with contextlib.suppress(UnreadableLine):
            parse_request_line(line(api, request=value, response=value), UTC)


# --- files


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    found = read_request_log(write(tmp_path / "a.log", line(), line()[:150] + "\n", "INFO noise\n", line()), "onprem")
    [observation] = found.observations
    assert (observation.used, observation.failed) == (2, 1)
    assert observation.not_seen[0].startswith("1 lines about requests that cannot be read (the first: ")


def test_silence_is_a_gap(tmp_path: Path) -> None:
    times = ("2026-11-28 01:00:00,000", "2026-11-28 01:04:00,000", "2026-11-28 01:30:00,000", "2026-11-28 01:29:59,000")
    found = read_request_log(write(tmp_path / "a.log", *(line(ms=each) for each in times)), "onprem")
    [observation] = found.observations
    [gap] = observation.gaps
    assert gap.last_ms - gap.first_ms == 26 * 60_000
    assert observation.seen.last_ms - observation.seen.first_ms == 30 * 60_000


def test_compressed_files_also_when_they_are_cut(tmp_path: Path) -> None:
    whole = gzip.compress("".join(line(client_id=f"c{number}") for number in range(2_000)).encode())
    (tmp_path / "whole.gz").write_bytes(whole)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    found = read_request_log(tmp_path / "whole.gz", "onprem")
    assert len(found.clients) == 2_000
    cut = read_request_log(tmp_path / "cut", "onprem")
    assert 0 < len(cut.clients) < 2_000
    assert any("ends in the middle" in text for text in cut.observations[0].not_seen)
    (tmp_path / "stub.gz").write_bytes(whole[:12])
    with pytest.raises(UnreadableInventory, match="the file ends in the middle"):
        read_request_log(tmp_path / "stub.gz", "onprem")


def test_long_lines_and_many_clients_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_LONGEST_LINE", 5_000)
    long = line(client_id="x" * 20_000)
    found = read_request_log(write(tmp_path / "a.log", line(), long, line(client_id="last")), "onprem")
    assert set(_clients(found)) == {"web", "last"}
    assert found.observations[0].failed == 1
    two = write(tmp_path / "two.log", line(), line(client_id="other"))
    found = read_request_log(two, "onprem", most_clients=1)
    assert set(_clients(found)) == {"web"}
    assert found.observations[0].not_seen == ("1 sightings of more clients, or more topics of one, than are kept",)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "it has no such line"), ("hello\n", "it has no such line"), (line()[:150] + "\n", "1 lines cannot be read")],
)
def test_a_file_that_is_no_log(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnreadableInventory, match=message):
        read_request_log(write(tmp_path / "a.log", text), "onprem")
    with pytest.raises(UnreadableInventory, match="No such file"):
        read_request_log(tmp_path / "b.log", "onprem")


def test_times_of_a_client(tmp_path: Path) -> None:
    times = ("2026-11-28 01:00:00,000", "2026-11-28 01:01:00,000")
    found = read_request_log(write(tmp_path / "a.log", *(line(ms=each) for each in times)), "onprem")
    [client] = found.clients
    assert client.seen == client.writes["orders"] == SeenSpan(1_795_827_600_000, 1_795_827_660_000)
