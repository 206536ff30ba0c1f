"""Strimzi's own classes read the resources of `topology assets`: no field that they do not know, no value that they
refuse, and what they write back is what we wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from py4j.java_gateway import JavaGateway

from tests.topology.assets_for_kubernetes import ASSETS
from watershed.lab.jars import fetch_jars, find_java
from watershed.topology.assets.strimzi_resources import write_strimzi_resources

pytestmark = [pytest.mark.slow, pytest.mark.soak]

_POM = Path(__file__).parents[1] / "schemas" / "strimzi.pom.xml"
_CLASSES = {
    "KafkaTopic": "io.strimzi.api.kafka.model.topic.KafkaTopic",
    "KafkaUser": "io.strimzi.api.kafka.model.user.KafkaUser",
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    """A JVM with Strimzi's classes; py4j's own jar comes with pyspark."""
    [py4j] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    jars = fetch_jars(_POM, name="strimzi")
    found = JavaGateway.launch_gateway(
        jarpath=str(py4j),
        classpath=f"{jars}/*",
        java_path=find_java(),
        die_on_exit=True,
        javaopts=["-XX:TieredStopAtLevel=1"],
    )
    yield found
    found.shutdown()


def _list_unknown(node: Any) -> Iterator[Any]:
    """Fields that a class keeps although it does not know them, at every depth."""
    for name in dir(node):
        if name == "getAdditionalProperties":
            yield from node.getAdditionalProperties()
    for getter in ("getSpec", "getAuthentication", "getPassword", "getAuthorization", "getQuotas"):
        if getter in dir(node) and (inner := getattr(node, getter)()) is not None:
            yield from _list_unknown(inner)
    if "getAcls" in dir(node):
        for rule in node.getAcls():
            yield from _list_unknown(rule)
            yield from _list_unknown(rule.getResource())


def _drop_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """Strimzi writes no `type: allow` and no `patternType: literal`."""
    for rule in spec.get("authorization", {}).get("acls", ()):
        for holder, key, usual in ((rule, "type", "allow"), (rule["resource"], "patternType", "literal")):
            if holder.get(key) == usual:
                del holder[key]
    return spec


def test_strimzi_reads_what_is_written(gateway: JavaGateway) -> None:
    mapper = gateway.jvm.com.fasterxml.jackson.databind.ObjectMapper()
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    count = 0
    for text in write_strimzi_resources(ASSETS, "shop").files.values():
        for document in yaml.safe_load_all(text):
            kind = gateway.jvm.java.lang.Class.forName(_CLASSES[document["kind"]], True, loader)
            read = mapper.readValue(json.dumps(document), kind)
            assert list(_list_unknown(read)) == []
            written = json.loads(mapper.writeValueAsString(read))
            assert written["spec"] == _drop_defaults(document["spec"])
            count += 1
    assert count == 11
    misspelt = {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaTopic", "spec": {"partition": 1}}
    kind = gateway.jvm.java.lang.Class.forName(_CLASSES["KafkaTopic"], True, loader)
    assert list(_list_unknown(mapper.readValue(json.dumps(misspelt), kind))) == ["partition"]
