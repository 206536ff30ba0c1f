"""What a topic's settings have to be while its logs are filled, and putting them back.

No state is stored. The final configs are computed from the flow and the source topic. A topic whose configs are neither
the final nor the temporary ones belongs to somebody else and is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from watershed.clusters.cluster_protocol import ClusterProtocol

CLEANUP_POLICY: Final = "cleanup.policy"
TIMESTAMP_BEFORE_MAX: Final = "message.timestamp.before.max.ms"
TIERED_STORAGE: Final = "remote.storage.enable"
UNLIMITED_RETENTION: Final[Mapping[str, str]] = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
}  # only ever beside another POLICY
ANY_RECORD_AGE: Final = str((1 << 63) - 1)
_OLDEST_OF_BROKER: Final = "log.message.timestamp.before.max.ms"


def build_filling_configs(wanted: Mapping[str, str], target: ClusterProtocol) -> dict[str, str]:
    """The settings of a topic's own that differ while it is filled, given those it is `wanted` to have in the end.

    Compaction refuses records without a key and DeleteRecords, and while it is off, retention must not take what other
    partitions of the topic hold already; filler is of 1970; and what is filled must not be moved to tiered storage. A
    new topic is created with `wanted | build_filling_configs(wanted, target)`.
    """
    found: dict[str, str] = {}
    if "compact" in wanted.get(CLEANUP_POLICY, target.broker_config("log.cleanup.policy") or "delete"):
        found |= {CLEANUP_POLICY: "delete", **UNLIMITED_RETENTION}
    oldest = wanted.get(TIMESTAMP_BEFORE_MAX) or target.broker_config(_OLDEST_OF_BROKER) or ANY_RECORD_AGE
    if int(oldest) < int(ANY_RECORD_AGE):
        found[TIMESTAMP_BEFORE_MAX] = ANY_RECORD_AGE
    if wanted.get(TIERED_STORAGE) == "true":
        found[TIERED_STORAGE] = "false"
    return found


def apply_filling_configs(
    target: ClusterProtocol, topic: str, wanted: Mapping[str, str], meanwhile: Mapping[str, str]
) -> str:
    """Give an existing topic the settings `meanwhile`; "" or why not. Does nothing where it has them.

    Raises ClusterError (Unauthorised without ALTER_CONFIGS).
    """
    own = target.topic_configs([topic])[topic]
    for key, value in meanwhile.items():
        ours = (
            value
            if key not in UNLIMITED_RETENTION or own.get(CLEANUP_POLICY) == meanwhile.get(CLEANUP_POLICY)
            else wanted.get(key)
        )
        if own.get(key) not in (ours, wanted.get(key)):
            has = f"{key}={own[key]}" if key in own else f"no {key} of its own"
            meant = f"{key}={wanted[key]}" if key in wanted else f"no {key} of its own"
            return (
                f"the target topic {topic} has {has} where the flow gives it {meant}, so it is not changed to fill it"
            )
    target.alter_topic_configs(topic, {key: value for key, value in meanwhile.items() if own.get(key) != value})
    return ""


def restore_topic_configs(
    target: ClusterProtocol, topic: str, wanted: Mapping[str, str], meanwhile: Mapping[str, str]
) -> bool:
    """Take the settings `meanwhile` back to what is `wanted`; whether there was anything to do. Any number of workers
    may do it. Raises ClusterError."""
    back = find_configs_to_restore(target.topic_configs([topic])[topic], wanted, meanwhile)
    target.alter_topic_configs(topic, back)
    return bool(back)


def find_configs_to_restore(
    own: Mapping[str, str], wanted: Mapping[str, str], meanwhile: Mapping[str, str]
) -> dict[str, str | None]:
    """What has to change so that a topic with its `own` settings has what is `wanted`; None: the brokers' default.

    Infinite retention is removed only if the topic also has the cleanup.policy that we set; otherwise a person set it.
    """
    prepared_by_us = own.get(CLEANUP_POLICY) == meanwhile.get(CLEANUP_POLICY)
    return {
        key: wanted.get(key)
        for key, value in meanwhile.items()
        if own.get(key) == value != wanted.get(key) and (key not in UNLIMITED_RETENTION or prepared_by_us)
    }
