"""`migration`: moving applications wave by wave, with gates before and after, and the way back."""

from __future__ import annotations

from watershed.topology.language.applications import APPLICATIONS_SHAPE
from watershed.topology.language.scalars import (
    DURATION_SHAPE,
    HTTP_URL_SHAPE,
    IDENTIFIER_KEYS_SCHEMA,
    IDENTIFIER_LIST_SHAPE,
    INSTANT_SHAPE,
    NAME_LIST_SHAPE,
    NAME_SHAPE,
    NONZERO_DURATION_SHAPE,
    PROOF_LEVEL_SHAPE,
    RATE_SHAPE,
    RECORD_COUNT_SHAPE,
    SECRET_REF_SHAPE,
    SHARE_SHAPE,
    TEXT_SHAPE,
    TOPIC_LITERAL_SHAPE,
    build_enum_shape,
    parse_identifier,
)
from watershed.topology.yaml_shapes import ListShape, MapShape, NamedShape, RecordShape, ShapeKey

_GATE = NamedShape(
    "gate",
    RecordShape(
        {
            "lag": ShapeKey(
                RecordShape(
                    {
                        "max_records": ShapeKey(
                            RECORD_COUNT_SHAPE, "The flow is at most so many records behind; 0 is caught up."
                        ),
                        "hold": ShapeKey(DURATION_SHAPE, "And stays so for this long."),
                    },
                    required=("max_records", "hold"),
                ),
                "The flow has caught up.",
            ),
            "verify": ShapeKey(
                RecordShape(
                    {
                        "level": ShapeKey(
                            PROOF_LEVEL_SHAPE,
                            "How deep the proof looks: L1 every record, L2 names differences, L3 groups, too.",
                        ),
                        "sample": ShapeKey(SHARE_SHAPE, "The share of records looked at.", "`100%`"),
                    },
                    required=("level",),
                ),
                "Spark proves that nothing is missing.",
            ),
            "approval": ShapeKey(TEXT_SHAPE, "This person or team says yes."),
            "stragglers": ShapeKey(
                RecordShape(
                    {
                        "watch": ShapeKey(
                            DURATION_SHAPE,
                            "So long the source's log ends must stand still: `before`, while nobody writes; `after`, "
                            "once producers are at the target. A single one counts as the first.",
                        )
                    },
                    required=("watch",),
                ),
                "No producer was forgotten.",
            ),
            "consumer_lag": ShapeKey(
                RecordShape(
                    {
                        "max_records": ShapeKey(
                            RECORD_COUNT_SHAPE, "The moved groups are at most so many records behind."
                        ),
                        "within": ShapeKey(DURATION_SHAPE, "And reach that in this time."),
                    },
                    required=("max_records", "within"),
                ),
                "The moved consumers keep up at the target.",
            ),
            "hold": ShapeKey(
                RecordShape({"for": ShapeKey(DURATION_SHAPE, "So long everything stays as it is.")}, required=("for",)),
                "Nothing is done for a while: time for people to look.",
            ),
            "check": ShapeKey(
                RecordShape(
                    {"hook": ShapeKey(NAME_SHAPE, "The hook that is called; it says yes or no.")}, required=("hook",)
                ),
                "A check of your own, one of `migration.hooks`.",
            ),
        },
        one_of=True,
    ),
)
_STRATEGY = build_enum_shape(
    "consumers_first",
    "producers_first",
    "fenced",
    elsewhere={"consumers_last": "`consumers_last` is said by single waves, under `migration.waves[].strategy`"},
)
_WAVE_STRATEGY = build_enum_shape("consumers_first", "producers_first", "fenced", "consumers_last")
_FENCE = NamedShape(
    "fence",
    RecordShape(
        {
            "kind": ShapeKey(
                build_enum_shape("stop", "acl", "quota", "external"),
                "How producers are kept from the source besides being told to stop: `stop` is only that; `acl` denies "
                "WRITE on the topics to the applications' principals; `quota` lowers their producer byte rate; "
                "`external` calls a hook. Whatever it is, it is observed: log ends must stand still.",
                "`stop`",
            ),
            "hook": ShapeKey(NAME_SHAPE, "For `external`: the hook that raises and lowers the fence."),
            "rate": ShapeKey(
                RATE_SHAPE, "For `quota`: what is left to the producers; brokers know no rate of 0.", "`1B/s`"
            ),
        },
        required=("kind",),
    ),
)
_HOOK = NamedShape(
    "hook",
    RecordShape(
        {
            "airflow_task": ShapeKey(
                TEXT_SHAPE, "`dag_id` or `dag_id/task_id` of the same Airflow: a run of that DAG."
            ),
            "http": ShapeKey(
                HTTP_URL_SHAPE, "An address that gets a POST; its host must be one of WATERSHED_HOOK_HOSTS."
            ),
            "python": ShapeKey(TEXT_SHAPE, "The name of a registered entry point (group `watershed.hooks`)."),
            "secret": ShapeKey(SECRET_REF_SHAPE, "For `http`: the key of the HMAC-SHA256 signature."),
            "timeout": ShapeKey(NONZERO_DURATION_SHAPE, "How long its answer may take.", "`1m`"),
            "on_failure": ShapeKey(
                build_enum_shape("refuse", "continue"), "What a no, an error or silence means for the step.", "`refuse`"
            ),
        },
    ),
)
_HOOK_NAMES = ListShape(NAME_SHAPE)
_HOOKS_AT = RecordShape(
    {
        "before": ShapeKey(_HOOK_NAMES, "Called when everything is proven, before anything is moved."),
        "fenced": ShapeKey(_HOOK_NAMES, "Called when the fence is up and the source stands still."),
        "switched": ShapeKey(_HOOK_NAMES, "Called when producers write to the target."),
        "rolled_back": ShapeKey(_HOOK_NAMES, "Called when everything was taken back."),
    }
)
_WAVE = NamedShape(
    "wave",
    RecordShape(
        {
            "name": ShapeKey(NAME_SHAPE, "What the wave is called in commands and in the journal."),
            "after": ShapeKey(
                NAME_LIST_SHAPE,
                "Waves that must be finished first.",
                "none; of `consumers_last` the waves that move the producers of its topics",
            ),
            "topics": ShapeKey(
                ListShape(TOPIC_LITERAL_SHAPE, empty="a wave moves at least one topic"), "Source topics, by name."
            ),
            "consumers": ShapeKey(IDENTIFIER_LIST_SHAPE, "Group ids; a group belongs to one wave."),
            "producers": ShapeKey(IDENTIFIER_LIST_SHAPE, "Application names."),
            "strategy": ShapeKey(
                _WAVE_STRATEGY,
                "This wave's strategy. `consumers_last`: only groups move, weeks after the producers of their topics.",
                "the migration's",
            ),
            "window": ShapeKey(
                RecordShape(
                    {
                        "opens": ShapeKey(INSTANT_SHAPE, "The first moment, with its zone."),
                        "length": ShapeKey(DURATION_SHAPE, "How long the wave may take."),
                    },
                    required=("opens", "length"),
                ),
                "When the wave may run.",
            ),
            "fence": ShapeKey(_FENCE, "This wave's fence.", "the migration's"),
            "hooks": ShapeKey(_HOOKS_AT, "Hooks that are called at points of this wave."),
            "gates": ShapeKey(
                RecordShape(
                    {
                        "before": ShapeKey(ListShape(_GATE), "All must hold before anything is moved."),
                        "after": ShapeKey(ListShape(_GATE), "All must hold before the wave counts as done."),
                    }
                ),
                "What must hold before and after.",
            ),
            "rollback": ShapeKey(
                RecordShape(
                    {
                        "until": ShapeKey(DURATION_SHAPE, "How long the way back is kept open."),
                        "reverse": ShapeKey(NAME_SHAPE, "The id of the flow that carries new records back."),
                        "none": ShapeKey(TEXT_SHAPE, "Or: why there is no way back."),
                    }
                ),
                "The way back; a `consumers_last` wave has that of its producers' wave.",
            ),
        },
        required=("name", "topics"),
    ),
)
MIGRATION_SHAPE = NamedShape(
    "migration",
    RecordShape(
        {
            "flow": ShapeKey(NAME_SHAPE, "The id of the flow whose applications move."),
            "strategy": ShapeKey(_STRATEGY, "Who moves first.", "`consumers_first`"),
            "fence": ShapeKey(_FENCE, "How producers are kept from the source.", "`{kind: stop}`"),
            "hooks": ShapeKey(
                MapShape(_HOOK), "Name → something of yours that is called: a DAG, an address, a function."
            ),
            "applications": ShapeKey(
                APPLICATIONS_SHAPE,
                "Application → how it is stopped and started; a person does it where nothing is said.",
            ),
            "groups": ShapeKey(
                MapShape(
                    RecordShape(
                        {
                            "uncommitted": ShapeKey(
                                build_enum_shape("earliest", "latest"),
                                "Where the group begins in partitions that it never committed.",
                                "such a group is refused",
                            ),
                            "state": ShapeKey(
                                build_enum_shape("refuse", "rebuild"),
                                "For Kafka Streams: whether it may begin with empty state stores at the target and "
                                "build them anew, from its exact positions on.",
                                "`refuse`",
                            ),
                            "redelivery": ShapeKey(
                                build_enum_shape("refuse", "accept"),
                                "For share groups: whether records may come again that were acknowledged before others "
                                "in front of them.",
                                "`refuse`",
                            ),
                            "session_timeout": ShapeKey(
                                DURATION_SHAPE,
                                "For static members: their `session.timeout.ms`, for which they keep their place in "
                                "the group after they have stopped.",
                                "`45s`",
                            ),
                        }
                    ),
                    parse_identifier,
                    names=IDENTIFIER_KEYS_SCHEMA,
                ),
                "Group id → what a move of the group needs to know.",
            ),
            "journal": ShapeKey(
                RecordShape(
                    {
                        "key": ShapeKey(
                            SECRET_REF_SHAPE,
                            "The key of the HMAC-SHA256 by which entries are signed; who has none forges none.",
                        ),
                        "earlier_keys": ShapeKey(
                            ListShape(SECRET_REF_SHAPE),
                            "Keys before this one, newest first: they verify what was signed before the newer one.",
                        ),
                    },
                    required=("key",),
                ),
                "How the journal of runs and approvals is signed.",
                "not signed: whoever may write to `watershed.journal` can forge entries",
            ),
            "waves": ShapeKey(ListShape(_WAVE, empty="a migration has at least one wave"), "What moves together."),
            "decommission": ShapeKey(
                RecordShape(
                    {
                        "not_before": ShapeKey(DURATION_SHAPE, "How long the source stays after the last wave."),
                        "requires": ShapeKey(
                            ListShape(build_enum_shape("all_waves_soaked", "verify_full")), "What must be true by then."
                        ),
                    },
                    required=("not_before",),
                ),
                "When the source may be taken down; Watershed deletes nothing.",
            ),
        },
        required=("flow", "waves"),
    ),
)
