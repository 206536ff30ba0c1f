"""One Spark session for all tests of this folder (a session costs about ten seconds)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from watershed.spark.session import create_spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    preload = Path(__file__).parent / "preload"
    with pytest.MonkeyPatch.context() as patch:  # Java starts with it, and hands it to Python
        patch.setenv("PYTHONPATH", str(preload), prepend=os.pathsep)
        session = create_spark_session("watershed-tests")
    yield session
    session.stop()
