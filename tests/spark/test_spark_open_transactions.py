"""Which logs have an open transaction when a proof begins, while producers write."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, cast

import pytest

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import LogRange, ReadIsolation, TopicDescription
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.judging.flow_observation import read_flow_facts
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))


class Growing:
    """A cluster whose log grows by five records with each question. stable: where an open transaction begins."""

    def __init__(self, stable: int | None = None) -> None:
        self.end, self.stable = 10, stable

    def topics(self) -> dict[str, TopicDescription]:
        return {"orders": TopicDescription("orders", uuid.UUID(int=1), 1, 1)}

    def effective_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: {} for name in names}

    def offsets(
        self, partitions: Iterable[TopicPartition], isolation: ReadIsolation = "read_committed"
    ) -> dict[TopicPartition, LogRange]:
        self.end += 5
        end = self.end if isolation == "read_uncommitted" or self.stable is None else self.stable
        return {each: LogRange(0, end) for each in partitions}


@pytest.mark.parametrize(("stable", "held"), [(None, []), (7, ["orders on a: transactions were open"])])
def test_records_that_are_written_meanwhile_are_no_open_transaction(stable: int | None, held: list[str]) -> None:
    source, target = cast(Any, Growing(stable)), cast(Any, Growing())
    settings = ConnectionSettings("a", ()), ConnectionSettings("b", ())
    notes = read_flow_facts(FLOW, cast(Admin, source), cast(Admin, target), settings).notes
    found = [note for note in notes if "transactions were open" in note]
    assert [note[: len("orders on a: transactions were open")] for note in found] == held
