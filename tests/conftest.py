"""What all tests share: one pair of real clusters for a whole run, unique topic names, the order of the files, and how
Hypothesis finds its examples."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from lab.clusters import Lab
    from lab.schema_registry import SchemaRegistryProcess

# A broker of the tests lives for a minute, in which the better compiler costs more than it brings.
os.environ.setdefault("WATERSHED_LAB_JVM", "-XX:TieredStopAtLevel=1")

# What a topology file may refer to is the runner's to say; the tests' secrets lie in folders of their own. The tests of
# these rules (tests/clusters/test_clusters_allowed.py) take the settings away again.
for _setting, _all in {"ENV": "*", "FILES": "/", "CONNECTIONS": "*", "PLAINTEXT": "*"}.items():
    os.environ.setdefault(f"WATERSHED_ALLOW_{_setting}", _all)

# So is which hosts may be called; the tests' applications listen on this machine.
os.environ.setdefault("WATERSHED_HOOK_HOSTS", "loopback")

# The suite tries the same examples every time, so that what fails has been changed; `make soak` looks for new ones
# (`--hypothesis-profile explore`). How long an example takes on a busy machine says nothing.
_BUSY = {"deadline": None, "suppress_health_check": (HealthCheck.too_slow,)}
settings.register_profile("suite", derandomize=True, **_BUSY)
settings.register_profile("explore", max_examples=1_000, print_blob=True, **_BUSY)
settings.load_profile("suite")

_LONGEST_FIRST = ("slow", "spark", "airflow", "kafka")  # marks; files without one are over in seconds


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Two processes share the files in this order (`--no-loadscope-reorder`): what is short comes last, so that none of
    them has a long file left when the other is done."""
    if not hasattr(config, "workerinput"):
        return
    rank: dict[Path, int] = {}
    for item in items:
        own = min((at for at, mark in enumerate(_LONGEST_FIRST) if item.get_closest_marker(mark)), default=99)
        rank[item.path] = min(own, rank.get(item.path, 99))
    items.sort(key=lambda item: rank[item.path])


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say what was left out, and why: a browser that is not there, for example."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = Counter(told[2].removeprefix("Skipped: ") for told in skipped if isinstance(told, tuple))
    for reason, count in reasons.items():
        terminalreporter.write_line(f"left out: {count} {'test' if count == 1 else 'tests'}: {reason}")


@pytest.fixture(scope="session")
def kafka_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two single-broker clusters, `onprem` and `cloud`; ended when the run ends, also by SIGTERM.

    Tests share them: use `topic_name` for topics, and do not stop these brokers.
    """
    from lab import clusters

    directory = tmp_path_factory.mktemp("kafka-pair")
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", returncode=143))
    try:
        yield clusters.start_clusters(directory, ["onprem", "cloud"])
    finally:
        clusters.end_clusters(directory)
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def registry_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SchemaRegistryProcess]]:
    """Two real schema registries that know nothing of each other. Tests share them: use names of your own."""
    from lab.schema_registry import run_registries

    before = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", returncode=143))
    try:
        with run_registries(tmp_path_factory.mktemp("registries"), 2) as both:
            yield both
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name for a topic (or group, or application) that no other test uses; append to it for several."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]
    return f"{test}-{uuid.uuid4().hex[:8]}"
