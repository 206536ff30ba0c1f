"""Counting the records of a small range whose head has expired: what is left counts, and it is no error."""

from __future__ import annotations

import uuid

from tests.spark.logs import a_log, packed
from tests.spark.memory import CLUSTER, Stored
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.spark_range_readers import count_range_records
from watershed.topology.plan import Plan

PLAN = Plan("memory", tuple(CLUSTER.values()), ())
UNIT = RangeRequest(0, "onprem", "t", str(uuid.UUID(int=1)), 0, 3, 30)


def test_what_expired_is_not_counted_and_no_error() -> None:
    stored = Stored()
    stored.put(("onprem", "t", 0), packed(a_log(1, 50)))
    with stored.in_place_of_clusters():
        assert count_range_records(PLAN, UNIT) == 27
        stored.starts["onprem", "t", 0] = 20
        assert count_range_records(PLAN, UNIT) == 10
        stored.starts["onprem", "t", 0] = 40
        assert count_range_records(PLAN, UNIT) == 0
