"""The exporter of a file and a real Prometheus with its rules, beside a test: which alerts fire, and when.

$WATERSHED_ALERT_DEFAULTS: 1 for a worker that waits for a log to settle as long as it does by default (35 s, not 3 s),
and a scrape and an evaluation every 15 s (not each second), as docs/alerts.md advises.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType

from tests.cli.exported import running_command, wait_answer
from tests.replicator.states_scene import QUICK, produce
from watershed.cli.main import main
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.free_ports import find_free_ports
from watershed.lab.prometheus_server import (
    PrometheusServer,
    end_prometheus,
    list_firing_alerts,
    start_prometheus,
)

Alert = tuple[str, str]  # name, state
HAS_DEFAULTS = os.environ.get("WATERSHED_ALERT_DEFAULTS") == "1"
GOAL_S = 60
# At defaults: 15 s of silence, 30 of waiting for the next scrape and evaluation, 30 more.
SILENCE_GOAL_S = 80 if HAS_DEFAULTS else 60
INTERVAL_S = 15.0 if HAS_DEFAULTS else 1.0
WORKER = "" if HAS_DEFAULTS else QUICK
NO_WORKER: Alert = ("WatershedNoWorker", "")
FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"]}}
  cloud: {{bootstrap: ["{cloud}"]}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: [{topics}]}}
    naming: {{policy: identity}}
    workers: {{engine: process, discovery: 1s}}
    slo: {{{slo}}}
"""


def write_file(path: Path, settings: dict[str, ConnectionSettings], name: str, topics: str, slo: str) -> None:
    addresses = {alias: each.bootstrap[0] for alias, each in settings.items()}
    path.write_text(FILE.format(**addresses, name=name, topics=topics, slo=slo))


def read_alerts(server: PrometheusServer) -> set[Alert]:
    return {(each["alertname"], each.get("state", "")) for each in list_firing_alerts(server)}


def wait_alerts(
    server: PrometheusServer, wanted: dict[str, Alert], before: frozenset[Alert] = frozenset(), goal_s: float = GOAL_S
) -> None:
    """Until all fire; no other may fire meanwhile but those of `before`."""
    began, late = time.monotonic(), dict(wanted)
    while late:
        firing = read_alerts(server)
        assert firing <= {*wanted.values(), *before}, firing
        for fault in [each for each, alert in late.items() if alert in firing]:
            print(f"{fault}: {late.pop(fault)[0]} after {time.monotonic() - began:.0f} s")
        assert time.monotonic() < began + goal_s, late
        time.sleep(0.5)


def wait_calm(server: PrometheusServer, left: frozenset[Alert] = frozenset(), seconds: float = 120) -> None:
    """Until those of `left` fire and no others."""
    began = time.monotonic()
    while (firing := read_alerts(server)) != left:
        assert time.monotonic() < began + seconds, firing
        time.sleep(0.5)
    print(f"calm after {time.monotonic() - began:.0f} s")


def watch_quiet(server: PrometheusServer, seconds: float, source: ConnectionSettings, topic: str) -> None:
    began, number = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        produce(source, topic, 100 + number, 10)
        number += 10
        assert read_alerts(server) == set()
        time.sleep(1)
    print(f"quiet: {number} records in {seconds:.0f} s, no alert")


@contextmanager
def watched_file(
    path: Path, folder: Path, changes: Mapping[str, str] = MappingProxyType({}), options: Sequence[str] = ()
) -> Iterator[PrometheusServer]:
    """The exporter of the file, and Prometheus with its rules, scraped and evaluated each second. changes: texts of the
    rules → what stands there instead. options: more of the exporter."""
    assert main(["alerts", str(path), "--out", str(folder / "rules")]) == 0
    port = find_free_ports(1)[0]
    with ExitStack() as stack:
        stack.enter_context(
            running_command(folder / "log", "exporter", str(path), "--listen", f"127.0.0.1:{port}", *options)
        )
        rules = list((folder / "rules").iterdir())
        assert rules
        for rule, (old, new) in product(rules, changes.items()):
            text = rule.read_text()
            assert old in text
            rule.write_text(text.replace(old, new))
        server = start_prometheus(
            folder / "prometheus", {"exporter": [f"127.0.0.1:{port}"]}, rules, interval_s=INTERVAL_S
        )
        stack.callback(end_prometheus, server)
        wait_answer(server, 'watershed_cluster_up{cluster="cloud"}', 1)
        yield server
