"""`flows[]`, `defaults` and the settings that patterns take: what travels, under which name, how, and by when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from watershed.topology.egress_compression import (
    CODEC_LEVELS,
    HIGHEST_LEVEL,
    NO_COMPRESSION,
    build_egress_compression,
)
from watershed.topology.language.copy_bounds import END_SHAPE, START_SHAPE
from watershed.topology.language.scalars import (
    BOOLEAN_SHAPE,
    DURATION_SHAPE,
    EXCLUDE_LIST_SHAPE,
    IDENTIFIER_KEYS_SCHEMA,
    IDENTIFIER_SHAPE,
    LINE_SHAPE,
    NAME_SHAPE,
    NONZERO_RATE_SHAPE,
    ONE_LINE_KEYS_SCHEMA,
    PROOF_LEVEL_SHAPE,
    RATE_SHAPE,
    REPLICA_COUNT_SHAPE,
    SECRET_REF_SHAPE,
    SELECTOR_LIST_SHAPE,
    SEPARATOR_SHAPE,
    SHARE_SHAPE,
    SYNC_MODE_SHAPE,
    TEXT_LIST_SHAPE,
    TEXT_SHAPE,
    TOPIC_NAME_SHAPE,
    build_enum_shape,
    build_integer_shape,
    parse_identifier,
    parse_one_line,
)
from watershed.topology.mirror_compatibility import LEAST_INTERVAL_MS
from watershed.topology.model import CheckedValue
from watershed.topology.naming import build_template_naming
from watershed.topology.record_transform import RECORD_FORMATS, RecordTransform, check_transform
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.scalar_shape import YamlShape
from watershed.topology.yaml_shapes import (
    ConvertedShape,
    ListShape,
    MapShape,
    NamedShape,
    RecordShape,
    ScalarOrShape,
    ShapeKey,
)


def _compression(value: CheckedValue) -> str | None:
    """A codec alone stays what it is."""
    if value.fields:
        build_egress_compression(value.get("codec"), value.get("level"))
    codec: str | None = value.data
    return codec


def _naming(value: CheckedValue) -> None:
    policy = value.get("policy")
    needs = {"template": "template", "map": "map"}.get(policy)
    for name in ("template", "map", "separator"):
        if name in value.fields and policy != {"separator": "prefix"}.get(name, name):
            raise ValueError(f"policy {policy} takes no `{name}`")
    if needs and needs not in value.fields:
        raise ValueError(f"policy {policy} needs `{needs}`")
    if policy == "template":
        text = value.get("template")
        fixed = len(re.sub(r"\{(?:topic|source|target)\}", "", text[: 2 * MAX_TOPIC_NAME_LETTERS]))
        if fixed > MAX_TOPIC_NAME_LETTERS:
            raise ValueError(
                f"the template has too many characters; a topic's name has at most {MAX_TOPIC_NAME_LETTERS}"
            )
        build_template_naming(text, "s", "t")
    if policy == "map":
        targets = [each.data for each in value.fields["map"].fields.values()]
        twice = sorted(name for name, count in Counter(targets).items() if count > 1)
        if twice:
            raise ValueError(f"two topics are mapped to `{twice[0]}`; a rename must be one-to-one")


def _groups_apart(value: CheckedValue) -> None:
    targets = Counter(each.data for each in value.fields.values())
    twice = sorted(name for name, count in targets.items() if count > 1)
    if twice:
        raise ValueError(f"two groups are renamed to `{twice[0]}`; the one that is further would make the other skip")


def _sync(
    what: str, named: str = "", told: str = "", more: Mapping[str, ShapeKey] | None = None, **own: ShapeKey
) -> RecordShape:
    """named: what the names in include and exclude are of. told: what `mode` means where nothing is carried over."""
    about = told or f"Whether {what} are carried over, and whether they are kept equal."
    return RecordShape(
        {
            "mode": ShapeKey(SYNC_MODE_SHAPE, about, "`never`"),
            "include": ShapeKey(EXCLUDE_LIST_SHAPE, f"Only {named or f'these {what}'}.", "all"),
            "exclude": ShapeKey(EXCLUDE_LIST_SHAPE, f"Not {named or f'these {what}'}; wins over include."),
            **own,
            **(more or {}),
        }
    )


def _pruning(what: str) -> dict[str, ShapeKey]:
    """The keys that say what becomes of `what` that the sync brought and the source has taken away."""
    return {
        "prune": ShapeKey(
            build_enum_shape("never", "approve", "auto"),
            f"What becomes of {what} at the target. `never`: they are only shown. `approve`: a person decides "
            "(`topology flow prune`). `auto`: they are removed after `prune_after`. Only what the sync brought is ever "
            "removed.",
            "`never`",
        ),
        "prune_after": ShapeKey(
            DURATION_SHAPE,
            "With `auto`: for so long the source must have shown them as gone, at every comparison.",
            "`24h`",
        ),
    }


def _lag(value: CheckedValue) -> None:
    p99, most = value.get("p99"), value.get("max")
    if p99 is not None and most is not None and p99 > most:
        raise ValueError("`p99` is more than `max`; most records cannot be later than the latest")


_LAG = ConvertedShape(
    RecordShape(
        {
            "p99": ShapeKey(DURATION_SHAPE, "Ninety-nine of a hundred records are at most so late."),
            "max": ShapeKey(DURATION_SHAPE, "No record is later than this while both clusters are up."),
        }
    ),
    _lag,
)
_TOPICS = RecordShape(
    {
        "include": ShapeKey(
            SELECTOR_LIST_SHAPE,
            "Topics that travel: plain text is one exact name, `{glob: …}` and `{regex: …}` match whole names.",
        ),
        "exclude": ShapeKey(EXCLUDE_LIST_SHAPE, "Topics that do not; wins over include."),
        "allow_internal": ShapeKey(
            BOOLEAN_SHAPE,
            "Lets internal topics travel that `include` names literally; patterns never take one.",
            "`false`",
        ),
    },
    bare_list="include",
)
_NAMING = ConvertedShape(
    RecordShape(
        {
            "policy": ShapeKey(
                build_enum_shape("identity", "prefix", "template", "map"),
                "`identity` keeps names; `prefix` puts the source's alias in front; `template` and `map` say how.",
            ),
            "separator": ShapeKey(SEPARATOR_SHAPE, "What stands between alias and name, for `prefix`.", "`.`"),
            "template": ShapeKey(
                TEXT_SHAPE, "Such as `{topic}.from.{source}`; it names {topic} once and may name {target}."
            ),
            "map": ShapeKey(
                MapShape(TOPIC_NAME_SHAPE), "Source name → target name, one-to-one; other names stay as they are."
            ),
        },
        required=("policy",),
    ),
    _naming,
    "NAM305",
)
_PROVENANCE = RecordShape(
    {
        "guard": ShapeKey(
            build_enum_shape("producer_id", "none"),
            "`producer_id` stops records that have been at the target, by the producer id of their batch.",
            "`producer_id`",
        ),
        "header": ShapeKey(
            TEXT_SHAPE,
            "Each record gets a header of this name that says where it came from; every batch is opened for it.",
        ),
        "forward": ShapeKey(
            build_enum_shape("all", "local"),
            "`local` takes only records born at the source, not those that another flow brought there.",
            "`all`; `local` in a direct mesh of three or more",
        ),
    }
)
_MERGE = RecordShape(
    {
        "allowed": ShapeKey(BOOLEAN_SHAPE, "Says out loud that several writers share the target topics.", "`false`"),
        "duplicates": ShapeKey(
            build_enum_shape("forbidden", "allowed"), "Whether a record may arrive by more than one way.", "`forbidden`"
        ),
        "partitions": ShapeKey(
            build_enum_shape("equal", "any"), "Whether all sources need the same partition count.", "`equal`"
        ),
        "compacted": ShapeKey(
            build_enum_shape("forbid", "allow"), "Whether compacted topics may be merged.", "`forbid`"
        ),
    }
)
_DELIVERY = RecordShape(
    {
        "semantics": ShapeKey(
            build_enum_shape("exactly_once", "at_least_once", "transactions"),
            "The least that the flow must have: `exactly_once` by sequence numbers or, beside other writers, in "
            "transactions; `transactions` always so; `at_least_once` also where records may repeat, and takes what is "
            "better wherever the clusters can give it. See guarantees.md.",
            "`exactly_once`",
        ),
        "isolation": ShapeKey(
            build_enum_shape("read_committed", "read_uncommitted"),
            "Whether aborted records stay out.",
            "`read_committed`",
        ),
        "start": ShapeKey(
            START_SHAPE,
            "Where a topic begins that was never copied: `earliest`, `latest`, or at an instant, at offsets, where a "
            "consumer group stands. See copying.md.",
            "`earliest`",
        ),
        "end": ShapeKey(
            END_SHAPE,
            "Where the copy ends: what stands in front of it is copied, nothing behind it, and the flow is then "
            "`complete`. `latest` is the log's end when a worker first looks. See copying.md.",
            "never",
        ),
        "on_gap": ShapeKey(
            build_enum_shape("stop", "continue"), "What happens when records expired before they were copied.", "`stop`"
        ),
        "rejected": ShapeKey(
            build_enum_shape("stop", "quarantine"), "What happens to a record that the target does not take.", "`stop`"
        ),
    }
)
MOST_WORKERS = 256  # of one fleet; sixteen serve, what is beyond stands by
_WORKERS = RecordShape(
    {
        "engine": ShapeKey(build_enum_shape("spark", "process"), "Who hosts the workers.", "`spark`"),
        "placement": ShapeKey(
            build_enum_shape("embedded", "task", "external"),
            "Who starts and heals the workers: processes on the Airflow host, an Airflow task, or others than Airflow "
            "(`docs/fleets.md`). All flows into a cluster say the same.",
            "`embedded`",
        ),
        "heal": ShapeKey(
            DURATION_SHAPE, "How often `fleet__<name>` starts a supervisor that has ended, by itself.", "never"
        ),
        "count": ShapeKey(
            build_integer_shape(1, MOST_WORKERS), "How many workers the fleet should have for this flow.", "1"
        ),
        "near": ShapeKey(
            ScalarOrShape(
                build_enum_shape("source", "target"),
                RecordShape(
                    {"rack": ShapeKey(LINE_SHAPE, "A rack of the source, as its brokers call it (`broker.rack`).")},
                    required=("rack",),
                    expected="`source`, `target`, or a mapping",
                    usual="{rack: eu-1a}",
                ),
                expected="`source`, `target`, or a mapping",
            ),
            "Where they run: at the target; at the source, in the rack `clusters.<source>.rack`; or in a rack of the "
            "source. With a rack they read from a replica there, where the brokers have a rack-aware "
            "`replica.selector.class` (see copying.md).",
            "`target`",
        ),
        "quota": ShapeKey(RATE_SHAPE, "The most bytes a second that the flow copies.", "no bound"),
        "weight": ShapeKey(build_integer_shape(1, 1_000), "Its share where flows compete for one worker.", "1"),
        "discovery": ShapeKey(DURATION_SHAPE, "How often new topics and partitions are looked for.", "`10s`"),
    }
)
_SYNC = RecordShape(
    {
        "configs": ShapeKey(
            RecordShape(
                {
                    "mode": ShapeKey(
                        SYNC_MODE_SHAPE,
                        "`once`: when a topic is created; `continuous`: also kept equal, where that is safe.",
                        "`once`",
                    ),
                    "include": ShapeKey(TEXT_LIST_SHAPE, "Only these config keys."),
                    "exclude": ShapeKey(
                        TEXT_LIST_SHAPE, "Never these keys.", "throttles, min.insync.replicas and the like"
                    ),
                    "set": ShapeKey(
                        MapShape(LINE_SHAPE, parse_one_line, names=ONE_LINE_KEYS_SCHEMA),
                        "Config key → value that target topics get, whatever the source says.",
                    ),
                }
            ),
            "Topic configs.",
        ),
        "acls": ShapeKey(
            _sync(
                "ACLs",
                "those of these topics and groups, by their names at the source",
                include_write=ShapeKey(
                    build_enum_shape("never", "on_failover", "always"),
                    "When rights to write are given at the target; `on_failover` shows them, and holds them back until "
                    "`topology migrate` or `topology failover` gives them, or the file says `always`.",
                    "`never`",
                ),
                more=_pruning("rights that are revoked at the source"),
            ),
            "Access rights to topics and groups.",
        ),
        "groups": ShapeKey(
            _sync(
                "consumer groups",
                interval=ShapeKey(DURATION_SHAPE, "How often positions are translated and written.", "`10s`"),
                when_target=ShapeKey(build_enum_shape("empty"), "Only into groups without members.", "`empty`"),
                rename=ShapeKey(
                    ConvertedShape(
                        MapShape(IDENTIFIER_SHAPE, parse_identifier, names=IDENTIFIER_KEYS_SCHEMA), _groups_apart
                    ),
                    "Group id at the source → id at the target; the others keep theirs.",
                ),
                streams=ShapeKey(
                    ListShape(IDENTIFIER_SHAPE),
                    "Applications of Kafka Streams, by their application ids, whose changelog and repartition topics "
                    "are in the flow: their positions follow the state ([how](kafka-streams.md)). They need not be in "
                    "`include`.",
                    "none: Streams applications are refused",
                ),
            ),
            "Positions of groups, translated exactly; those of tools (`connect-*`, …) only where `include` names them.",
        ),
        "quotas": ShapeKey(
            _sync("client quotas", "those of these users and client ids (`default` for the defaults)"), "Client quotas."
        ),
        "users": ShapeKey(
            _sync(
                "SCRAM users",
                told="Whether `topology plan` (`once`), and the status as well (`continuous`), tell them.",
                more=_pruning("users that are deleted at the source"),
            ),
            "SCRAM users: those that lack are told, since brokers never hand out credentials.",
        ),
        "schemas": ShapeKey(
            _sync(
                "schema subjects",
                ids=ShapeKey(
                    build_enum_shape("preserve", "translate"),
                    "Whether schemas keep their ids at the target, or get others there, which are then written into "
                    "the records on their way.",
                    "`preserve`",
                ),
                subjects=ShapeKey(
                    build_enum_shape("keep", "follow_topic"),
                    "Whether subjects are renamed with their topics.",
                    "`keep`",
                ),
            ),
            "Schemas between the two clusters' registries: the subjects called after topics of the flow, or those that "
            "`include` names, and what they refer to.",
        ),
    }
)
_SLO = RecordShape(
    {
        "lag": ShapeKey(_LAG, "How late records may be at the target."),
        "end_to_end": ShapeKey(_LAG, "The same over a whole chain."),
        "outage_allowance": ShapeKey(
            DURATION_SHAPE, "How long the flow may stand still without loss; retention must cover it."
        ),
        "rpo": ShapeKey(DURATION_SHAPE, "How much may be lost when the source dies; zero needs a stretch cluster."),
        "rto": ShapeKey(DURATION_SHAPE, "How long applications may stand still in a failover."),
        "on_breach": ShapeKey(
            build_enum_shape("alert", "pause", "fail"),
            "What else happens when `slo.lag.max` is exceeded: nothing, the flow is paused, or all of it halts, "
            "[until a person resumes it](alerts.md#budgets-that-stop-a-flow).",
            "`alert`",
        ),
    }
)
_CODEC = build_enum_shape(*CODEC_LEVELS, NO_COMPRESSION)
_COMPRESSION = ConvertedShape(
    ScalarOrShape(
        _CODEC,
        RecordShape(
            {
                "codec": ShapeKey(_CODEC, "`none`: batches pass as they are, whatever `defaults` says."),
                "level": ShapeKey(
                    build_integer_shape(1, HIGHEST_LEVEL),
                    "How hard it tries: zstd 1 to 22, lz4 1 to 12, gzip 1 to 9; snappy has no levels.",
                    "zstd 3, lz4 1, gzip 6",
                ),
            },
            required=("codec",),
            expected="a codec, or a mapping",
            usual="{codec: zstd, level: 3}",
        ),
        expected="a codec, or a mapping",
    ),
    _compression,
)


def _mirrormaker(value: CheckedValue) -> None:
    for name in ("heartbeat_interval", "checkpoint_interval"):
        if value.get(name, default=LEAST_INTERVAL_MS) < LEAST_INTERVAL_MS:
            raise ValueError(f"`{name}` is at least {LEAST_INTERVAL_MS} ms: each time is a request to the brokers")


_COMPATIBILITY = RecordShape(
    {
        "mirrormaker": ShapeKey(
            ConvertedShape(
                RecordShape(
                    {
                        "heartbeats": ShapeKey(
                            BOOLEAN_SHAPE,
                            "Writes `heartbeats` at the source, and mirrors them to `<source>.heartbeats` at the "
                            "target.",
                            "`false`",
                        ),
                        "heartbeat_interval": ShapeKey(DURATION_SHAPE, "How often a heartbeat is written.", "`1s`"),
                        "checkpoints": ShapeKey(
                            BOOLEAN_SHAPE,
                            "Writes where groups of the source would go on to `<source>.checkpoints.internal` at the "
                            "target; `sync.groups.include` and `exclude` say which groups.",
                            "`false`",
                        ),
                        "checkpoint_interval": ShapeKey(
                            DURATION_SHAPE, "How often groups are looked at for their checkpoints.", "`60s`"
                        ),
                        "offset_syncs": ShapeKey(
                            BOOLEAN_SHAPE,
                            "Writes pairs of equal positions to `mm2-offset-syncs.<other cluster>.internal`.",
                            "`false`",
                        ),
                        "offset_syncs_at": ShapeKey(
                            build_enum_shape("source", "target"), "Which cluster holds the offset syncs.", "`source`"
                        ),
                        "aliases": ShapeKey(
                            MapShape(TOPIC_NAME_SHAPE),
                            "Alias in this file → what MirrorMaker 2 calls the cluster in the names of its topics.",
                            "the same",
                        ),
                        "separator": ShapeKey(
                            SEPARATOR_SHAPE, "What stands between the parts of those names.", "`naming.separator`, `.`"
                        ),
                    }
                ),
                _mirrormaker,
            ),
            "Topics of MirrorMaker 2 that its clients and dashboards read. See mirrormaker.md.",
        ),
        "source_group": ShapeKey(
            IDENTIFIER_SHAPE,
            "A group at the source under which the flow commits how far it has copied, for tools that show lag. No "
            "application uses it, and no flow syncs it.",
            "nothing is committed",
        ),
    }
)
_FORMAT = build_enum_shape(*RECORD_FORMATS)


def _transform(value: CheckedValue) -> RecordTransform:
    fields = {name: each.fields for name, each in value.fields.items()}
    found = RecordTransform(
        value.get("format", "key", default="bytes"),
        value.get("format", "value", default="bytes"),
        tuple(sorted((name, each.data) for name, each in fields.get("schema", {}).items())),
        value.get("where"),
        tuple(sorted((name, each.data) for name, each in fields.get("set", {}).items())),
        tuple(sorted(value.texts("drop"))),
        tuple(sorted((name, each.data) for name, each in fields.get("secrets", {}).items())),
    )
    check_transform(found)
    return found


_TRANSFORM = ConvertedShape(
    RecordShape(
        {
            "engine": ShapeKey(build_enum_shape("spark"), "Who evaluates the expressions.", "`spark`"),
            "format": ShapeKey(
                RecordShape(
                    {
                        "key": ShapeKey(_FORMAT, "How expressions see keys.", "`bytes`"),
                        "value": ShapeKey(_FORMAT, "How expressions see values.", "`bytes`"),
                    }
                ),
                "`bytes`: binary; `string`: text in UTF-8; `json`: an object with the fields of `schema`; `avro`, "
                "`protobuf`: the same, by the schema of each record in the registry of the source.",
            ),
            "schema": ShapeKey(
                RecordShape(
                    {
                        "key": ShapeKey(LINE_SHAPE, "Fields of keys."),
                        "value": ShapeKey(LINE_SHAPE, "Fields of values."),
                    }
                ),
                "The fields that expressions use, as Spark writes columns: `country string, amount decimal(12,2)`. "
                "Fields that are not named travel as they are.",
            ),
            "where": ShapeKey(
                TEXT_SHAPE,
                "A condition in Spark SQL over key, value, headers, timestamp, topic, partition and offset. Records "
                "for which it is false do not travel; one for which it is null is rejected.",
                "all records travel",
            ),
            "set": ShapeKey(
                MapShape(TEXT_SHAPE),
                "`value`, `value.FIELD`, `key`, `key.FIELD` or `headers.NAME` → an expression in Spark SQL. Keys need "
                "`partitions: {mapping: key}`.",
            ),
            "drop": ShapeKey(TEXT_LIST_SHAPE, "`value.FIELD`, `key.FIELD` or `headers.NAME` that do not travel."),
            "secrets": ShapeKey(
                MapShape(SECRET_REF_SHAPE),
                "Name → where the secret stands; an expression says `secret('NAME')`, inside a hash.",
            ),
        }
    ),
    _transform,
    "SYN011",
)
FLOW_SETTINGS: dict[str, ShapeKey] = {
    "topics": ShapeKey(NamedShape("topics", _TOPICS), "Which topics travel."),
    "naming": ShapeKey(NamedShape("naming", _NAMING), "What topics are called at the target.", "`{policy: identity}`"),
    "provenance": ShapeKey(
        NamedShape("provenance", _PROVENANCE), "How loops are stopped, and whether records travel on."
    ),
    "merge": ShapeKey(NamedShape("merge", _MERGE), "Several writers into one target topic, where that is meant."),
    "protect": ShapeKey(
        BOOLEAN_SHAPE,
        "Whether the target's topics refuse all writes but Watershed's, by ACLs, until applications move there.",
        "`false`",
    ),
    "offsets": ShapeKey(
        build_enum_shape("mapped", "aligned"),
        "`aligned`: every record has the same offset on both sides; `mapped`: offsets are translated exactly.",
        "`mapped`",
    ),
    "state": ShapeKey(build_enum_shape("running", "paused"), "Whether the flow runs once it is applied.", "`running`"),
    "replication_factor": ShapeKey(REPLICA_COUNT_SHAPE, "Of topics created at the target.", "the source's"),
    "partitions": ShapeKey(
        RecordShape(
            {
                "mode": ShapeKey(
                    build_enum_shape("grow", "fixed"), "Whether target topics grow with the source's.", "`grow`"
                ),
                "mapping": ShapeKey(
                    build_enum_shape("preserve", "key"),
                    "`preserve`: the records of one key stand in one partition, as at the source. `key`: this is not "
                    "promised, so `transform` may change keys. A record keeps its partition either way.",
                    "`preserve`",
                ),
            }
        ),
        "Partition counts.",
    ),
    "delivery": ShapeKey(NamedShape("delivery", _DELIVERY), "What is promised for each record."),
    "workers": ShapeKey(NamedShape("workers", _WORKERS), "Who copies, how many, how fast."),
    "compression": ShapeKey(
        NamedShape("compression", _COMPRESSION),
        "Workers compress batches that the source stores uncompressed before they send them, as in `zstd` or "
        "`{codec: zstd, level: 3}`; batches with a codec keep it. See copying.md.",
        "batches pass as they are",
    ),
    "transform": ShapeKey(
        NamedShape("transform", _TRANSFORM),
        "Which records travel and what is changed in them, by expressions that Spark evaluates. See transform.md.",
        "records travel as they are",
    ),
    "sync": ShapeKey(NamedShape("sync", _SYNC), "What else is carried over beside records."),
    "compatibility": ShapeKey(
        NamedShape("compatibility", _COMPATIBILITY),
        "What is written beside the copy for tools that were made for MirrorMaker 2.",
        "nothing",
    ),
    "slo": ShapeKey(NamedShape("slo", _SLO), "Budgets: what rules check and alerts watch. See alerts.md."),
    "verify": ShapeKey(
        RecordShape(
            {
                "every": ShapeKey(DURATION_SHAPE, "How often Airflow proves the flow anew.", "only on demand"),
                "level": ShapeKey(PROOF_LEVEL_SHAPE, "How deep it looks on that schedule.", "`L1`"),
                "rate": ShapeKey(
                    NONZERO_RATE_SHAPE,
                    "The most that a proof reads of each of the two clusters, all its tasks together; the smallest of "
                    "the flows that are proven together counts.",
                    "no bound",
                ),
                "fetches": ShapeKey(
                    build_integer_shape(1, 1000),
                    "How many tasks of a proof may read from one broker at the same time.",
                    "as many as Spark runs",
                ),
                "pause_at_lag": ShapeKey(
                    DURATION_SHAPE,
                    "A proof stops reading while records of the flow wait longer than this; it goes on when they do "
                    "not, and after ten minutes in any case.",
                    "never",
                ),
                "recheck": ShapeKey(
                    SHARE_SHAPE,
                    "The share of what earlier proofs have shown that an incremental one reads again.",
                    "`1%`",
                ),
            }
        ),
        "The proof: on a schedule, and what it may take.",
    ),
    "expected": ShapeKey(
        RecordShape(
            {"peak_ingress": ShapeKey(RATE_SHAPE, "The most that producers write at the source into these topics.")}
        ),
        "What is expected of the source.",
    ),
}


def build_settings_shape(
    name: str, more: dict[str, ShapeKey] | None = None, required: tuple[str, ...] = ()
) -> YamlShape:
    """A section that takes every setting, and `more`."""
    return NamedShape(name, RecordShape({**(more or {}), **FLOW_SETTINGS}, required))


def find_setting_unit(path: str) -> str:
    """What a setting at a dotted path is measured in: `duration`, `rate`, `size`, or "" for anything else."""
    shape: YamlShape = RecordShape(FLOW_SETTINGS)
    for name in path.split("."):
        while isinstance(shape, (NamedShape, ConvertedShape)):
            shape = shape.inner
        key = shape.fields.get(name) if isinstance(shape, RecordShape) else None
        if key is None:
            return ""
        shape = key.shape
    name = shape.name.removesuffix("_above_zero") if isinstance(shape, NamedShape) else ""
    return name if name in ("duration", "rate", "size") else ""


FLOW_SHAPE = build_settings_shape(
    "flow",
    {
        "source": ShapeKey(NAME_SHAPE, "The alias that records come from."),
        "target": ShapeKey(NAME_SHAPE, "The alias that they go to."),
        "suffix": ShapeKey(
            NAME_SHAPE, "Tells two flows on one route apart: the id is `<source>-to-<target>-<suffix>`."
        ),
    },
    ("source", "target"),
)
DEFAULTS_SHAPE = build_settings_shape("settings")
