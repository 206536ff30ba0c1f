"""The topic of `topology probe`: created for one probe, and deleted at its end whatever happened."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError, ProtocolError, RequestRefused, Unauthorised
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.target_log import TargetLog

PROBE_TOPIC_PREFIX: Final = "watershed.probe-"
_DELETED_S: Final = 60.0
_LATE_S: Final = 3.0  # in which a topic may appear whose creation was interrupted
_PAUSE_S: Final = 0.1
_GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


def find_left_topics(settings: ConnectionSettings) -> list[str]:
    """Topics of earlier probes that were ended before they could delete them. Raises ClusterError."""
    with open_connection(settings) as connection:
        return [name for name in connection.topics() if name.startswith(PROBE_TOPIC_PREFIX)]


def require_topic_deletion(admin: Admin) -> None:
    """Raises RequestRefused where brokers say that they delete no topics: a probe would leave its own behind.

    A broker's configs are shown to an account with DESCRIBE_CONFIGS on the cluster, and by some vendors to nobody.
    Where they are hidden the probe goes on; a topic that then stays is named at the end.
    """
    try:
        said = admin.broker_config("delete.topic.enable")
    except (Unauthorised, RequestRefused, ProtocolError):
        return
    if said == "false":
        raise RequestRefused(
            f"cluster {admin.settings.alias} deletes no topics (delete.topic.enable=false), so a probe would leave its "
            "own behind; nothing was created",
            alias=admin.settings.alias,
        )


@contextmanager
def create_probe_topic(settings: ConnectionSettings, admin: Admin) -> Iterator[TargetLog]:
    """The log of a new topic with one partition, which is deleted at the end.

    Raises ClusterError where it cannot be created, RequestRefused where it cannot be deleted; the message names it.
    """
    name, created = f"{PROBE_TOPIC_PREFIX}{secrets.token_hex(6)}", False
    ended_by: BaseException | None = None
    try:
        admin.create_topic(name, 1, min(3, admin.brokers()))
        created = True
        with open_connection(settings) as connection:  # librdkafka knows no id that stands in for a missing one
            topic_id = connection.metadata((name,)).topics[0].topic_id
        yield TargetLog(lambda address: open_connection(settings, address), settings.alias, name, topic_id, 0)
    except BaseException as error:
        ended_by = error
        raise
    finally:
        delete_probe_topic(settings, admin, name, is_created=created, ended_by=ended_by)


def delete_probe_topic(
    settings: ConnectionSettings,
    admin: Admin,
    name: str,
    *,
    is_created: bool = True,
    ended_by: BaseException | None = None,
) -> None:
    """Returns when no broker shows the topic any more. Tries for 60 s, whatever the cluster answers meanwhile.

    is_created: False where its creation failed or was interrupted: it may appear later, and is deleted then. ended_by:
    what ended the probe before. Raises RequestRefused, which names the topic and both errors, where the topic stays.
    """
    began = time.monotonic()
    client: AdminClient | None = None
    left, why = "is left", "it is still shown"
    while (waited := time.monotonic() - began) < _DELETED_S:
        is_late = is_created or waited >= _LATE_S
        try:
            if client is None:
                client = AdminClient(settings.librdkafka())
            why = _ask_to_delete(client, name) or why
            if admin.topic(name) is None and is_late:
                return
        except ClusterError as error:
            why = str(error)
            if isinstance(error, Unauthorised) and not is_created and is_late:
                left = "may be left"  # whoever may not create it may not see it either
                break
        time.sleep(_PAUSE_S)
    before = f" The probe had ended before: {str(ended_by) or type(ended_by).__name__}" if ended_by is not None else ""
    raise RequestRefused(
        f"topic {name} of the probe {left} on cluster {settings.alias}: {why.rstrip('. ')}. Delete it there.{before}",
        alias=settings.alias,
    )


def _ask_to_delete(client: AdminClient, name: str) -> str:
    """Why the cluster does not delete the topic, in librdkafka's words; "" where it does, or has no such topic."""
    try:
        librdkafka.wait_for_result(client.delete_topics([name], request_timeout=_DELETED_S)[name], _DELETED_S)
    except KafkaException as error:
        reason = librdkafka.extract_kafka_error(error)
        return "" if reason.code() in _GONE else reason.str()
    return ""
