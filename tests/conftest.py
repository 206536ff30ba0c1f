"""Fixtures shared by all tests: one pair of real clusters for a whole run, and unique topic names."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab.clusters import Lab


@pytest.fixture(scope="session")
def kafka_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two single-broker clusters, `onprem` and `cloud`; ended when the run ends, also by SIGTERM.

    Tests share them: use `topic_name` for topics, and do not stop these brokers.
    """
    from lab import clusters

    directory = tmp_path_factory.mktemp("kafka-pair")
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", returncode=143))
    try:
        yield clusters.up(directory, ["onprem", "cloud"])
    finally:
        clusters.down(directory)
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name for a topic (or group, or application) that no other test uses; append to it for several."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]
    return f"{test}-{uuid.uuid4().hex[:8]}"
