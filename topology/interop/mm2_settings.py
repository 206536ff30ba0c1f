"""The settings of MirrorMaker 2 by what becomes of them: carried over, left behind for a reason, or unknown.

Source: the ConfigDefs of apache/kafka connect/mirror (MirrorConnectorConfig, MirrorSourceConfig,
MirrorCheckpointConfig, MirrorHeartbeatConfig), connect/runtime (ConnectorConfig, SourceConnectorConfig,
DistributedConfig) and the clients, of Kafka 2.4 to 4.x; keys that a later version removed are known, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from watershed.topology.interop.import_notes import UNKNOWN_SETTING, ForeignSetting, ImportNotes
from watershed.topology.spelling import suggest_word

# what `mirror` and `security` read
_CARRIED = """
enabled topics topics.exclude topics.blacklist topics.whitelist groups groups.exclude groups.blacklist
groups.whitelist replication.policy.class replication.policy.separator replication.factor
sync.topic.configs.enabled sync.topic.acls.enabled sync.group.offsets.enabled
sync.group.offsets.interval.seconds config.properties.exclude config.properties.blacklist
refresh.topics.interval.seconds tasks.max emit.heartbeats.enabled emit.heartbeats.interval.seconds
emit.checkpoints.enabled emit.checkpoints.interval.seconds emit.offset-syncs.enabled offset-syncs.topic.location
source.cluster.alias target.cluster.alias exactly.once.source.support
exactly.once.support consumer.auto.offset.reset consumer.isolation.level consumer.client.rack name connector.class
"""
CARRIED_MM2_KEYS = frozenset(_CARRIED.split())
# of the consumer that reads the source
SOURCE_CONSUMER_KEYS = ("consumer.auto.offset.reset", "consumer.isolation.level", "consumer.client.rack")
# what older versions, and people, call a setting; the `whitelist` names never were MirrorMaker 2's
ALIAS_KEYS = ("source.cluster.alias", "target.cluster.alias")
RENAMED_MM2_KEYS = {
    "topics.whitelist": "topics",
    "topics.blacklist": "topics.exclude",
    "groups.whitelist": "groups",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
BASIC_CONNECTION_KEYS = frozenset({"security.protocol", "bootstrap.servers"})
_SECURITY = re.compile(r"(?:sasl|ssl)\.[a-z0-9._]+")

_THREE_REPLICAS = "topics of `compatibility` get three replicas, or one for each broker where there are fewer"
_CONNECT = "a setting of the Connect worker; Watershed has none"
_CLIENT = "tuning of a Kafka client; Watershed tunes its own"
_FOLLOWED = "topics, partitions and groups are always followed; `workers.discovery` says how often"
# settings that say what a flow does anyway: nothing is lost, so there is nothing to say (Kafka's defaults)
_AS_ALWAYS = frozenset({("refresh.topics.enabled", "true"), ("refresh.groups.enabled", "true")})
# the first pattern that fits says why
_LEFT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"offset\.lag\.max", "offset syncs are written each five seconds (`compatibility.mirrormaker.offset_syncs`)"),
        (r"(?:offset-syncs|checkpoints|heartbeats)\.topic\..*", _THREE_REPLICAS),
        (r"heartbeats\.replication\.enabled", "`compatibility.mirrormaker.heartbeats` mirrors them, too"),
        (r"sync\.topic\.(?:configs|acls)\.interval\.seconds", "Watershed compares every 30 seconds"),
        (r"refresh\.(?:topics|groups)\.(?:enabled|interval\.seconds)", _FOLLOWED),
        (r"topic\.filter\.class", "a class that selects topics cannot be read; say its choice in `topics`"),
        (r"group\.filter\.class", "a class that selects groups cannot be read; say its choice in `sync.groups`"),
        (r"config\.property\.filter\.class", "a class cannot be read; say its choice in `sync.configs`"),
        (r"use\.defaults\.from", "defaults stay those of the target; name what matters in `sync.configs.set`"),
        (r"use\.incremental\.alter\.configs", "configurations are always altered one by one"),
        (r"replication\.policy\.internal\.topic\.separator\.enabled", "it names MirrorMaker's own topics only"),
        (r"replication\.policy\..+", "a parameter of a replication policy class that cannot be read"),
        (
            r"forwarding\.admin\.class",
            "topics are created with the admin client of the target; no class can be plugged in",
        ),
        (r"admin\.timeout\.ms|consumer\.poll\.timeout\.ms", _CLIENT),
        (
            r"add\.source\.alias\.to\.metrics|metric\.reporters|metrics\..*|auto\.include\.jmx\.reporter",
            "metrics have names of their own",
        ),
        (r"(?:transforms|predicates)(?:\..+)?", "records are copied byte for byte; nothing transforms them on the way"),
        (r"(?:key|value|header)\.converter(?:\..+)?", "records are copied byte for byte, without converters"),
        (r"errors\..*", "`delivery.rejected` says what becomes of a record that the target refuses"),
        (r"topic\.creation\..*", "topics are created like at the source; see `replication_factor` and `sync.configs`"),
        (r"config\.providers(?:\..+)?", "secrets are references here; the provider itself is not needed"),
        (r"dedicated\.mode\.enable\.internal\.rest|listeners.*|rest\..*|admin\.listeners.*", _CONNECT),
        (r"(?:offset|config|status)\.storage\..*|offset\.flush\..*|offsets\.storage\.topic", _CONNECT),
        (
            r"group\.id|client\.id|client\.rack|plugin\..*|worker\..*|task\..*|tasks\.max\.enforce|config\.action\.reload",
            _CONNECT,
        ),
        (r"transaction\.boundary.*|access\.control\..*|response\..*|connector\.client\.config\..*", _CONNECT),
        (
            r"connect\.protocol|inter\.worker\..*|scheduled\.rebalance\..*|rebalance\..*|heartbeat\.interval\.ms",
            _CONNECT,
        ),
        (r"session\.timeout\.ms|topic\.tracking\..*|exactly\.once\..*|header\.version|kafka\.version", _CONNECT),
        (r"(?:producer|consumer|admin)\.override\..*", _CLIENT),
        (r"(?:source\.|target\.)?(?:producer|consumer|admin)\..*", _CLIENT),
        (
            r"request\.timeout\.ms|retry\.backoff.*|reconnect\.backoff.*|connections\.max\.idle\.ms|metadata\..*|retries"
            r"|default\.api\.timeout\.ms|socket\..*|send\.buffer\.bytes|receive\.buffer\.bytes|client\.dns\.lookup"
            r"|interceptor\.classes|bootstrap\.controllers|bootstrap\.resolve\.timeout\.ms|bootstrap\.servers\..*"
            r"|max\.poll\..*|(?:max\.partition\.)?fetch\..*|message\.max\.bytes|compression\..*|max\.request\.size"
            r"|buffer\.memory|batch\.size|linger\.ms|acks|enable\.idempotence|delivery\.timeout\.ms|max\.block\.ms"
            r"|max\.in\.flight\.requests\.per\.connection",
            _CLIENT,
        ),
    )
)
# for the nearest known word: keys that people write by hand
_OFTEN = """
offset-syncs.topic.replication.factor checkpoints.topic.replication.factor heartbeats.topic.replication.factor
heartbeats.replication.enabled refresh.topics.enabled refresh.groups.enabled refresh.groups.interval.seconds
sync.topic.configs.interval.seconds sync.topic.acls.interval.seconds offset.lag.max topic.filter.class
group.filter.class config.property.filter.class forwarding.admin.class use.defaults.from admin.timeout.ms
consumer.poll.timeout.ms bootstrap.servers security.protocol sasl.mechanism sasl.jaas.config
ssl.truststore.location ssl.truststore.password ssl.keystore.location ssl.keystore.password ssl.key.password
offset.storage.replication.factor config.storage.replication.factor status.storage.replication.factor
offset.storage.topic config.storage.topic status.storage.topic offset.flush.interval.ms
"""
_COMMON = CARRIED_MM2_KEYS | frozenset(_OFTEN.split())


def is_connection_key(key: str) -> bool:
    """Whether the key says how a client connects."""
    return key in BASIC_CONNECTION_KEYS or _SECURITY.fullmatch(key) is not None


def explain_not_carried(key: str) -> str | None:
    """Why a known setting is not carried over; None when it is carried, or unknown."""
    if key in CARRIED_MM2_KEYS or is_connection_key(key):
        return None
    return next((why for pattern, why in _LEFT if pattern.fullmatch(key)), None)


def is_as_always(key: str, said: ForeignSetting) -> bool:
    """Whether the setting only asks for what every flow does."""
    return (key, said.text.strip().lower()) in _AS_ALWAYS


def explain_setting(key: str, said: ForeignSetting) -> str | None:
    """Why this value is not carried over; None when it is carried, unknown, or what every flow does anyway."""
    if is_as_always(key, said):
        return None
    if key == "refresh.topics.enabled":
        return (
            "MirrorMaker finds no new topics and partitions while it runs; a flow finds them: name the topics one by "
            "one in `topics` where new ones shall stay out"
        )
    if key.endswith(".type") and said.text.strip().endswith("Router"):  # RegexRouter, TimestampRouter
        return "it renames topics on their way; say their names in `naming`"
    return explain_not_carried(key)


def report_consumer_override(said: ForeignSetting, key: str, instead: str, notes: ImportNotes) -> None:
    """SYN003: Connect gives `consumer.override.…` to sink connectors only, and MirrorMaker's connectors are sources.
    instead: what reads the setting (`source`). Source: apache/kafka connect/runtime Worker.baseConsumerConfigs."""
    meant = f"{instead}.consumer." + key.removeprefix("consumer.override.")
    notes.add_problem(
        "SYN003",
        f"`{said.name}` has no effect: Connect gives it to sink connectors, and MirrorMaker's are source connectors",
        said.key,
        f"write `{meant}`",
        severity="warning",
    )


def note_connector_setting(key: str, said: ForeignSetting, notes: ImportNotes) -> None:
    """Says of a connector's setting why it is not carried over, or that nobody knows it. Says nothing of one that is
    carried over, and of one that asks for what every flow does."""
    if key in CARRIED_MM2_KEYS or key.removeprefix("source.") in SOURCE_CONSUMER_KEYS or is_as_always(key, said):
        return
    if key.startswith("consumer.override."):
        report_consumer_override(said, key, "source", notes)
        return
    why = explain_setting(key, said)
    if key == "clusters" or "->" in key:
        why = "only MirrorMaker's own properties file has it; a connector does not read it"
    elif why is None and is_connection_key(key):
        why = "MirrorMaker connects with `source.cluster.…` and `target.cluster.…` only"
    if why is None:
        report_unknown_setting(key, said, notes)
    else:
        notes.add_not_carried(f"`{said.name}`", why, said.span)


def report_unknown_setting(key: str, said: ForeignSetting, notes: ImportNotes) -> None:
    """SYN003, and what is most likely meant. key: the name without the layer that it stands in."""
    near = suggest_mm2_key(key)
    if near is not None:
        shown = said.name.removesuffix(key) + near
        notes.add_problem("SYN003", f"`{said.name}` is no setting of MirrorMaker", said.key, f"did you mean `{shown}`?")
    else:
        notes.add_problem("SYN003", f"`{said.name}` is no known setting of MirrorMaker", said.key, severity="warning")
    notes.add_not_carried(f"`{said.name}`", UNKNOWN_SETTING, said.span)


def check_known_settings(
    settings: Mapping[str, ForeignSetting],
    left: Sequence[tuple[re.Pattern[str], str]],
    known: Collection[str],
    what: str,
    notes: ImportNotes,
) -> None:
    """Notes why each of these settings, which nobody reads, is not carried over, and which of them nobody knows.

    left: the reasons of one tool, before those of MirrorMaker 2. what: `setting of Replicator`.
    """
    for key, said in settings.items():
        why = next((why for pattern, why in left if pattern.fullmatch(key)), None)
        near = (_turn_words(key, known) or suggest_word(key, known)) if why is None else None
        if near is not None:
            notes.add_problem("SYN003", f"`{said.name}` is no {what}", said.key, f"did you mean `{near}`?")
            why = UNKNOWN_SETTING
        why = why or explain_not_carried(key)
        if why is None:
            notes.add_problem("SYN003", f"`{said.name}` is no known {what}", said.key, severity="warning")
            why = UNKNOWN_SETTING
        notes.add_not_carried(f"`{said.name}`", why, said.span)


def is_known_mm2_key(key: str) -> bool:
    """True for a connector setting that is imported, or left out for a known reason."""
    return key in CARRIED_MM2_KEYS or is_connection_key(key) or explain_not_carried(key) is not None


def _turn_words(key: str, known: Collection[str]) -> str | None:
    """The known word that has the parts of this one in the other order: `tasks.max` for `max.tasks`."""
    turned = ".".join(reversed(key.split(".")))
    return turned if turned in known and turned != key else None


def suggest_mm2_key(key: str) -> str | None:
    """What an unknown key most likely means."""
    side, _, rest = key.partition(".")
    if side in ("source", "target") and is_connection_key(rest):
        return f"{side}.cluster.{rest}"
    if (turned := _turn_words(key, _COMMON)) is not None:
        return turned
    for suffix in (".enabled", "d", "s"):
        if key + suffix in _COMMON:
            return key + suffix
    return suggest_word(key, _COMMON)


def resolve_renamed_key(key: str, said: ForeignSetting, notes: ImportNotes) -> str:
    """The name of a setting in Kafka 4; says when the file has another one."""
    name = RENAMED_MM2_KEYS.get(key)
    if name is None:
        return key
    shown = said.name[: len(said.name) - len(key)] + name if said.name.endswith(key) else name
    if "whitelist" in key:
        message = f"`{said.name}` is no setting of MirrorMaker 2, which then copies `.*`"
        notes.add_problem("SYN003", message, said.key, f"write `{shown}`; imported as that")
    else:
        notes.add_problem(
            "SYN008", f"`{said.name}`: Kafka 4 does not know this name any more", said.key, f"write `{shown}`"
        )
    return name
