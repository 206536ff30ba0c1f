"""One Spark session for all tests of this folder (a session costs about ten seconds)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark.session import create_spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = create_spark_session("watershed-tests")
    yield session
    session.stop()
