"""Use read from a real broker with the JMX exporter in it: rates, sizes and partitions as they are."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from watershed.cli.main import main
from watershed.lab import clusters
from watershed.lab.free_ports import find_free_ports
from watershed.lab.jars import fetch_jars

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

FILES = Path(__file__).parents[1] / "usage"
TOPICS = {"orders.created": (4, 1000), "orders.paid": (2, 200)}  # partitions, bytes of a value
TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: shop}}
clusters:
  onprem: {{bootstrap: ["{bootstrap}"]}}
  cloud: {{bootstrap: ["127.0.0.1:9"]}}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [{{glob: "orders.*"}}]}}}}
"""
SOURCES = """
apiVersion: usage/v1alpha1
kind: UsageSources
clusters:
  onprem: {{exporters: {{urls: ["http://127.0.0.1:{port}/metrics"]}}}}
"""


@dataclass
class Shop:
    """Files for the command, and a producer of `TOPICS`."""

    folder: Path
    bootstrap: str

    def read(self) -> dict[str, Any]:
        """The document's part about the cluster."""
        output = self.folder / "usage.json"
        arguments = ["usage", str(self.folder / "shop.yaml"), "--sources", str(self.folder / "usage.yaml")]
        assert main([*arguments, "--sample", "8s", "-o", str(output)]) == 0
        found: dict[str, Any] = json.loads(output.read_text())["clusters"]["onprem"]
        return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("usage")
    jar = next(fetch_jars(FILES / "exporter.pom.xml", name="exporter").glob("*.jar"))
    [port] = find_free_ports(1)
    with pytest.MonkeyPatch.context() as patch:
        try:
            clusters.start_clusters(folder / "lab", ["onprem"])  # its archive of classes is made without an agent
            clusters.end_clusters(folder / "lab", keep=True)
            patch.setenv("WATERSHED_LAB_JVM", f"-javaagent:{jar}=127.0.0.1:{port}:{FILES / 'exporter.yml'}")
            bootstrap = clusters.start_clusters(folder / "lab", ["onprem"]).clusters["onprem"].bootstrap
            (folder / "shop.yaml").write_text(TOPOLOGY.format(bootstrap=bootstrap))
            (folder / "usage.yaml").write_text(SOURCES.format(port=port))
            admin = AdminClient({"bootstrap.servers": bootstrap})
            new = [NewTopic(name, partitions, 1) for name, (partitions, _) in TOPICS.items()]
            for each in admin.create_topics(new).values():
                each.result(60)
            yield Shop(folder, bootstrap)
        finally:
            clusters.end_clusters(folder / "lab")


def test_rates_are_those_of_the_producer_and_silence_is_a_real_zero(shop: Shop) -> None:
    ended, sent = threading.Event(), [0, 0.0]

    def produce() -> None:
        producer, began = Producer({"bootstrap.servers": shop.bootstrap}), time.monotonic()
        while not ended.is_set():
            for topic, (_, size) in TOPICS.items():
                for _ in range(20):
                    producer.produce(topic, b"x" * size)
            assert producer.flush(30) == 0
            sent[:] = [sent[0] + 20, time.monotonic() - began]
            ended.wait(0.1)

    producing = threading.Thread(target=produce)
    producing.start()
    time.sleep(2)  # both topics have counters before the first reading
    try:
        busy = shop.read()
    finally:
        ended.set()
        producing.join()
    for topic, (partitions, size) in TOPICS.items():
        rates = busy["topics"][topic]["rates"]
        assert rates["messages_in"]["mean"] == pytest.approx(sent[0] / sent[1], rel=0.25)
        assert rates["bytes_in"]["mean"] > rates["messages_in"]["mean"] * size
        assert busy["topics"][topic]["partitions"] == partitions
    silent = shop.read()
    inventory = shop.folder / "inventory.json"
    scan = ["scan", str(shop.folder / "shop.yaml"), "--cluster", "onprem", "--sample", "0s", "-o", str(inventory)]
    assert main(scan) == 0
    scanned = json.loads(inventory.read_text())["clusters"]["onprem"]["topics"]
    for topic in TOPICS:
        assert silent["topics"][topic]["rates"]["bytes_in"]["mean"] == 0.0
        assert silent["topics"][topic]["stored"] == scanned[topic]["size_bytes"] > 0
