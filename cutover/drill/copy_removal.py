"""Removing what a rehearsal made, and nothing else: only what its journal says that it would make, and only under names
that are a rehearsal's. Every part may be repeated, and one that fails does not keep the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log, read_latest_values
from watershed.clusters.control_topics import FLOWS_TOPIC, LEDGER_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import read_flow_to_change, write_flow
from watershed.clusters.partition_status_records import delete_partition_status, read_partition_statuses
from watershed.clusters.producer_registry import PRODUCER_PREFIX
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_writes import delete_acls
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import JsonObject
from watershed.cutover.drill.copy_creation import build_copy_acls
from watershed.cutover.drill.drill_topology import DRILL_PREFIX

_KEPT = {"retention.ms": "3600000", "min.compaction.lag.ms": "0"}
_LET_GO_S = 30.0  # for workers to let go of a flow; then their last reports are old anyway
_SILENT_MS = 15_000
_ANSWER_S = 30.0
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.GROUP_ID_NOT_FOUND)


def delete_copies(settings: Mapping[str, ConnectionSettings], what: JsonObject) -> list[str]:
    """What is left, with the reason; empty when nothing is. Flows go first: workers must not find their topics gone."""
    left: list[str] = []
    for flow_id, alias in sorted(what["flows"].items()):
        left += _tried(partial(_end_drill_flow, settings[alias], flow_id), f"flow {flow_id} at {alias}")
    copies = {what["source"]: [each["copy"] for each in what["copies"]]}
    copies[what["target"]] = [each["target_copy"] for each in what["copies"]]
    for alias, names in copies.items():
        if what["keep"]:
            left += _tried(partial(_let_expire, settings[alias], names), f"topics {', '.join(names)} at {alias}")
            continue
        left += _tried(partial(_remove_groups, settings[alias], what["groups"]), f"groups at {alias}")
        left += _tried(partial(_remove_topics, settings[alias], names), f"topics {', '.join(names)} at {alias}")
        allowed = what["allowed"].get(alias, [])
        left += _tried(partial(_remove_rights, settings[alias], allowed), f"rights on copies at {alias}")
    return left


def _end_drill_flow(settings: ConnectionSettings, flow_id: str) -> list[str]:
    """Workers let go of it; then nothing says any more that it was there, but its producer id in the registry, which
    stays for good. Raises ClusterError."""
    record = read_flow_to_change(settings, flow_id)
    with ControlWriter(settings, "watershed-drill") as writer:
        if record is not None:
            if record.state != "stopped":
                write_flow(writer, record.with_state("stopped"))
            _wait_let_go(settings, flow_id)
            writer.put(FLOWS_TOPIC, record.key, None)
        for key in read_latest_values(settings, FLOWS_TOPIC):  # orders, alignments
            if flow_id in key.split("|")[1:] and not key.startswith(PRODUCER_PREFIX):
                writer.put_nowait(FLOWS_TOPIC, key, None, 0)
        for each in read_control_log(settings, LEDGER_TOPIC):
            if each.key.startswith(f"{flow_id}|") and each.value is not None:
                writer.put_nowait(LEDGER_TOPIC, each.key, None, each.partition)
        _wait_forgotten(settings, flow_id)
        for report in read_partition_statuses(settings):
            if report.flow == flow_id:
                delete_partition_status(writer, report)
    return []


def _wait_let_go(settings: ConnectionSettings, flow_id: str) -> None:
    """Until every partition is reported as stopped, or by nobody."""
    deadline = time.monotonic() + _LET_GO_S
    while time.monotonic() < deadline:
        now = time.time() * 1000
        reports = [each for each in read_partition_statuses(settings) if each.flow == flow_id]
        if all(each.state == "stopped" or now - each.at_ms > _SILENT_MS for each in reports):
            return
        time.sleep(0.3)


def _wait_forgotten(settings: ConnectionSettings, flow_id: str) -> None:
    """Workers take back their reports themselves; those of workers that have died are taken back for them."""
    deadline = time.monotonic() + _LET_GO_S
    while time.monotonic() < deadline:
        now = time.time() * 1000
        if all(now - each.at_ms > _SILENT_MS for each in read_partition_statuses(settings) if each.flow == flow_id):
            return
        time.sleep(0.3)


def _remove_topics(settings: ConnectionSettings, names: Iterable[str]) -> list[str]:
    with Admin(settings) as admin:
        ours = [name for name in _ours(names) if admin.topic(name) is not None]
    if not ours:
        return []
    client = AdminClient(settings.librdkafka())
    answers = client.delete_topics(ours, operation_timeout=_ANSWER_S, request_timeout=_ANSWER_S)
    return [
        f"topic {name} at {settings.alias}: {why}"
        for name, each in answers.items()
        if (why := _failure(each)) is not None
    ]


def _remove_groups(settings: ConnectionSettings, names: Iterable[str]) -> list[str]:
    """A member that died is counted for its session's time, so a group may have to be asked again."""
    left = _ours(names)
    whys: dict[str, str] = {}
    deadline = time.monotonic() + _LET_GO_S
    while left:
        client = AdminClient(settings.librdkafka())
        answers = client.delete_consumer_groups(left, request_timeout=_ANSWER_S)
        whys = {name: why for name, each in answers.items() if (why := _failure(each)) is not None}
        left = list(whys)
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    return [f"group {name} at {settings.alias}: {why}" for name, why in whys.items()]


def _remove_rights(settings: ConnectionSettings, allowed: list[list[str]]) -> list[str]:
    ours = [each for each in allowed if each[1].startswith(DRILL_PREFIX)]
    if not ours:
        return []
    with open_connection(settings) as inquiry:
        refused = delete_acls(inquiry, build_copy_acls(ours))
    return [f"right of {acl.principal} on {acl.name} at {settings.alias}: {why}" for acl, why in refused.items()]


def _let_expire(settings: ConnectionSettings, names: Iterable[str]) -> list[str]:
    with Admin(settings) as admin:
        for name in _ours(names):
            if admin.topic(name) is not None:
                admin.alter_topic_configs(name, _KEPT)
    return []


def _ours(names: Iterable[str]) -> list[str]:
    """The last line: whatever a journal says, nothing of anybody else is removed."""
    return [name for name in names if name.startswith(DRILL_PREFIX)]


def _tried(remove: Callable[[], list[str]], what: str) -> list[str]:
    try:
        return remove()
    except (ClusterError, KafkaException) as error:
        return [f"{what}: {error}"]


def _failure(future: Future[Any]) -> str | None:
    """None when it is gone, now or before."""
    try:
        future.result(_ANSWER_S)
    except KafkaException as error:
        reason = librdkafka.extract_kafka_error(error)
        return None if reason.code() in _GONE else reason.str()
    except TimeoutError:
        return f"no answer in {_ANSWER_S:g} s"
    return None
