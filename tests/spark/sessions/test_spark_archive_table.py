"""Spark reads the objects of an archive as a table, as docs/archive.md says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.archives import write_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_objects_are_a_table(spark: SparkSession, tmp_path: Path) -> None:
    manifest = write_archive(tmp_path, 70, 20)
    table = spark.read.parquet(f"{tmp_path}/topics/orders/*")
    assert table.columns == [
        "base_offset", "last_offset", "count", "max_timestamp_ms", "leader_epoch", "batch",
    ]  # fmt: skip
    [row] = table.selectExpr(
        "sum(count) as records", "sum(length(batch)) as bytes", "max(last_offset) as last"
    ).collect()
    assert row.records == sum(each.records for each in manifest.objects) == 90
    assert (row.bytes, row.last) == (sum(each.batch_bytes for each in manifest.objects), 69)
