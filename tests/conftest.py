"""What all tests share: one pair of real clusters for a whole run, unique topic names, the order of the files, and how
Hypothesis finds its examples."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.spark_archive import OPTIONS as SPARK_ARCHIVE_OPTIONS

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter
    from xdist.remote import Producer

    from tests.process_groups import GroupScheduling
    from tests.replicator.guarded import Guarded
    from watershed.lab.clusters import Lab
    from watershed.lab.schema_registry import SchemaRegistryProcess

# A broker of the tests lives for minutes, in which the better compiler costs more than it brings; also in those of a
# whole run it takes a third of a broker's processor time, and requests cost no less (decision 0070).
os.environ.setdefault("WATERSHED_LAB_JVM", "-XX:TieredStopAtLevel=1")

# Spark's classes, loaded once (`make test` writes the archive), and compiled quickly: a worker that transforms compiles
# well because it lives for months, and here it lives for seconds.
_SPARK_JAVA = "-XX:TieredStopAtLevel=1"
if (_ARCHIVE := Path(sys.prefix) / "spark.jsa").exists():
    _SPARK_JAVA += f" {SPARK_ARCHIVE_OPTIONS} -XX:SharedArchiveFile={_ARCHIVE}"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _SPARK_JAVA)

# What a topology file may refer to is the runner's to say; the tests' secrets lie in folders of their own. The tests of
# these rules (tests/clusters/test_clusters_allowed.py) take the settings away again.
for _setting, _all in {"ENV": "*", "FILES": "/", "CONNECTIONS": "*", "PLAINTEXT": "*", "IDENTITIES": "*"}.items():
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
    """The processes share the files in this order (`--no-loadscope-reorder`): what is short comes last, so that none of
    them has a long file left when the others are done."""
    if not hasattr(config, "workerinput"):
        return
    rank: dict[Path, int] = {}
    for item in items:
        own = min((at for at, mark in enumerate(_LONGEST_FIRST) if item.get_closest_marker(mark)), default=99)
        rank[item.path] = min(own, rank.get(item.path, 99))
    items.sort(key=lambda item: rank[item.path])


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """A file stays with one process, and so do files that share what is dear."""
    from tests.process_groups import GroupScheduling

    return GroupScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say what was left out, and why: a browser that is not there, for example."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = Counter(told[2].removeprefix("Skipped: ") for told in skipped if isinstance(told, tuple))
    for reason, count in reasons.items():
        terminalreporter.write_line(f"left out: {count} {'test' if count == 1 else 'tests'}: {reason}")


@pytest.fixture(scope="session")
def kafka_pair(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two single-broker clusters, `onprem` and `cloud`, of all processes of a run (decision 0070).

    Tests share them, at the same time: use `topic_name` for topics, groups, topologies; do not stop these brokers; what
    looks at a whole cluster, or sets what all clients feel, takes `own_pair`.

    $WATERSHED_TEST_KAFKA: their releases, as `2.8.2/4.3.1` (onprem/cloud; lab/releases.py).
    """
    from watershed.lab import clusters

    asked = os.environ.get("WATERSHED_TEST_KAFKA")
    kafka = dict(zip(("onprem", "cloud"), asked.split("/"), strict=True)) if asked else None
    return clusters.start_clusters(_shared_in(tmp_path_factory, "kafka-pair"), ["onprem", "cloud"], kafka=kafka)


@pytest.fixture(scope="module")
def own_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two such clusters that only this file uses."""
    from watershed.lab import clusters

    directory = tmp_path_factory.mktemp("own-pair")
    try:
        yield clusters.start_clusters(directory, ["onprem", "cloud"])
    finally:
        clusters.end_clusters(directory)


@pytest.fixture(scope="session")
def guarded_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Two clusters with an authorizer, for the fixture `guarded` of tests/replicator/guarded.py. One process has all
    files that use it (tests/process_groups.py)."""
    from tests.replicator.guarded import run_guarded_clusters

    with run_guarded_clusters(tmp_path_factory.mktemp("guarded")) as pair:
        yield pair


def _shared_in(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all processes of a run name alike; xdist gives each one below the first process's own."""
    base = factory.getbasetemp()
    return (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / name


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not walk over it again and again."""
    gc.freeze()
    gc.enable()


def pytest_sessionstart() -> None:
    """What the fixtures started is ended by SIGTERM, too. Collecting makes no garbage; the collector costs a fifth."""
    gc.disable()
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", returncode=143))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The first process ends after all others, however those ended, and ends what they shared."""
    if hasattr(session.config, "workerinput"):
        return
    factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    if factory._basetemp is None:
        return
    if (pair := _shared_in(factory, "kafka-pair")).is_dir():
        from watershed.lab import clusters

        clusters.end_clusters(pair)
    if (registries := _shared_in(factory, "registries")).is_dir():
        from watershed.lab.schema_registry import end_registries

        end_registries(registries)


@pytest.fixture(scope="session")
def registry_pair(tmp_path_factory: pytest.TempPathFactory) -> list[SchemaRegistryProcess]:
    """Two real schema registries that know nothing of each other, of all processes of a run. Tests share them: use
    names of your own."""
    from watershed.lab.schema_registry import start_registries

    return start_registries(_shared_in(tmp_path_factory, "registries"), 2)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name for a topic (or group, or application) that no other test uses; append to it for several."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]
    return f"{test}-{uuid.uuid4().hex[:8]}"
