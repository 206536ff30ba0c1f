"""`migration`: moving applications wave by wave, with gates before and after, and the way back."""

from __future__ import annotations

from topology.language.scalars import (
    DURATION,
    HTTP,
    IDENTIFIER,
    IDENTIFIER_NAMES,
    IDENTIFIERS,
    INSTANT,
    LEVEL,
    NAME,
    NAMES,
    PRINCIPAL,
    RATE,
    RECORDS,
    SECRET,
    SHARE,
    TEXT,
    TOPIC,
    identifier,
    word,
)
from topology.shapes import Key, ListOf, MapOf, Named, Record

_GATE = Named(
    "gate",
    Record(
        {
            "lag": Key(
                Record(
                    {
                        "max_records": Key(RECORDS, "The flow is at most so many records behind; 0 is caught up."),
                        "hold": Key(DURATION, "And stays so for this long."),
                    },
                    required=("max_records", "hold"),
                ),
                "The flow has caught up.",
            ),
            "verify": Key(
                Record(
                    {
                        "level": Key(
                            LEVEL, "How deep the proof looks: L1 every record, L2 names differences, L3 groups, too."
                        ),
                        "sample": Key(SHARE, "The share of records looked at.", "`100%`"),
                    },
                    required=("level",),
                ),
                "Spark proves that nothing is missing.",
            ),
            "approval": Key(TEXT, "This person or team says yes."),
            "stragglers": Key(
                Record(
                    {
                        "watch": Key(
                            DURATION,
                            "So long the source's log ends must stand still: `before`, while nobody writes; `after`, "
                            "once producers are at the target. A single one counts as the first.",
                        )
                    },
                    required=("watch",),
                ),
                "No producer was forgotten.",
            ),
            "consumer_lag": Key(
                Record(
                    {
                        "max_records": Key(RECORDS, "The moved groups are at most so many records behind."),
                        "within": Key(DURATION, "And reach that in this time."),
                    },
                    required=("max_records", "within"),
                ),
                "The moved consumers keep up at the target.",
            ),
            "hold": Key(
                Record({"for": Key(DURATION, "So long everything stays as it is.")}, required=("for",)),
                "Nothing is done for a while: time for people to look.",
            ),
            "check": Key(
                Record({"hook": Key(NAME, "The hook that is called; it says yes or no.")}, required=("hook",)),
                "A check of your own, one of `migration.hooks`.",
            ),
        },
        one_of=True,
    ),
)
_STRATEGY = word("consumers_first", "producers_first", "fenced")
_FENCE = Named(
    "fence",
    Record(
        {
            "kind": Key(
                word("stop", "acl", "quota", "external"),
                "How producers are kept from the source besides being told to stop: `stop` is only that; `acl` denies "
                "WRITE on the topics to the applications' principals; `quota` lowers their producer byte rate; "
                "`external` calls a hook. Whatever it is, it is observed: log ends must stand still.",
                "`stop`",
            ),
            "hook": Key(NAME, "For `external`: the hook that raises and lowers the fence."),
            "rate": Key(RATE, "For `quota`: what is left to the producers; brokers know no rate of 0.", "`1B/s`"),
        },
        required=("kind",),
    ),
)
_HOOK = Named(
    "hook",
    Record(
        {
            "airflow_task": Key(TEXT, "`dag_id` or `dag_id/task_id` of the same Airflow: a run of that DAG."),
            "http": Key(HTTP, "An address that gets a POST; its host must be one of WATERSHED_HOOK_HOSTS."),
            "python": Key(TEXT, "The name of a registered entry point (group `watershed.hooks`)."),
            "secret": Key(SECRET, "For `http`: the key of the HMAC-SHA256 signature."),
            "timeout": Key(DURATION, "How long its answer may take.", "`1m`"),
            "on_failure": Key(
                word("refuse", "continue"), "What a no, an error or silence means for the step.", "`refuse`"
            ),
        },
    ),
)
_HOOK_NAMES = ListOf(NAME)
_HOOKS_AT = Record(
    {
        "before": Key(_HOOK_NAMES, "Called when everything is proven, before anything is moved."),
        "fenced": Key(_HOOK_NAMES, "Called when the fence is up and the source stands still."),
        "switched": Key(_HOOK_NAMES, "Called when producers write to the target."),
        "rolled_back": Key(_HOOK_NAMES, "Called when everything was taken back."),
    }
)
_WAVE = Named(
    "wave",
    Record(
        {
            "name": Key(NAME, "What the wave is called in commands and in the journal."),
            "after": Key(NAMES, "Waves that must be finished first."),
            "topics": Key(ListOf(TOPIC, empty="a wave moves at least one topic"), "Source topics, by name."),
            "consumers": Key(IDENTIFIERS, "Group ids; a group belongs to one wave."),
            "producers": Key(IDENTIFIERS, "Application names."),
            "strategy": Key(_STRATEGY, "This wave's strategy.", "the migration's"),
            "window": Key(
                Record(
                    {
                        "opens": Key(INSTANT, "The first moment, with its zone."),
                        "length": Key(DURATION, "How long the wave may take."),
                    },
                    required=("opens", "length"),
                ),
                "When the wave may run.",
            ),
            "fence": Key(_FENCE, "This wave's fence.", "the migration's"),
            "hooks": Key(_HOOKS_AT, "Hooks that are called at points of this wave."),
            "gates": Key(
                Record(
                    {
                        "before": Key(ListOf(_GATE), "All must hold before anything is moved."),
                        "after": Key(ListOf(_GATE), "All must hold before the wave counts as done."),
                    }
                ),
                "What must hold before and after.",
            ),
            "rollback": Key(
                Record(
                    {
                        "until": Key(DURATION, "How long the way back is kept open."),
                        "reverse": Key(NAME, "The id of the flow that carries new records back."),
                        "none": Key(TEXT, "Or: why there is no way back."),
                    }
                ),
                "The way back.",
            ),
        },
        required=("name", "topics"),
    ),
)
MIGRATION = Named(
    "migration",
    Record(
        {
            "flow": Key(NAME, "The id of the flow whose applications move."),
            "strategy": Key(_STRATEGY, "Who moves first.", "`consumers_first`"),
            "fence": Key(_FENCE, "How producers are kept from the source.", "`{kind: stop}`"),
            "hooks": Key(MapOf(_HOOK), "Name → something of yours that is called: a DAG, an address, a function."),
            "applications": Key(
                MapOf(
                    Record(
                        {
                            "http": Key(
                                HTTP,
                                "Its start and stop switch; the host must be one of WATERSHED_HOOK_HOSTS.",
                            ),
                            "principal": Key(
                                PRINCIPAL, "Who it is for brokers (`User:checkout`): for fences and messages."
                            ),
                            "client_id": Key(IDENTIFIER, "The client id of its producers: for quotas and messages."),
                        }
                    ),
                    identifier,
                    names=IDENTIFIER_NAMES,
                ),
                "Application → how it is stopped and started; without `http` a person confirms.",
            ),
            "groups": Key(
                MapOf(
                    Record(
                        {
                            "uncommitted": Key(
                                word("earliest", "latest"),
                                "Where the group begins in partitions that it never committed.",
                                "such a group is refused",
                            ),
                            "state": Key(
                                word("refuse", "rebuild"),
                                "For Kafka Streams: whether it may begin with empty state stores at the target and "
                                "build them anew, from its exact positions on.",
                                "`refuse`",
                            ),
                            "redelivery": Key(
                                word("refuse", "accept"),
                                "For share groups: whether records may come again that were acknowledged before others "
                                "in front of them.",
                                "`refuse`",
                            ),
                            "session_timeout": Key(
                                DURATION,
                                "For static members: their `session.timeout.ms`, for which they keep their place in "
                                "the group after they have stopped.",
                                "`45s`",
                            ),
                        }
                    ),
                    identifier,
                    names=IDENTIFIER_NAMES,
                ),
                "Group id → what a move of the group needs to know.",
            ),
            "journal": Key(
                Record(
                    {
                        "key": Key(
                            SECRET, "The key of the HMAC-SHA256 by which entries are signed; who has none forges none."
                        ),
                        "earlier_keys": Key(
                            ListOf(SECRET),
                            "Keys before this one, newest first: they verify what was signed before the newer one.",
                        ),
                    },
                    required=("key",),
                ),
                "How the journal of runs and approvals is signed.",
                "not signed: whoever may write to `watershed.journal` can forge entries",
            ),
            "waves": Key(ListOf(_WAVE, empty="a migration has at least one wave"), "What moves together."),
            "decommission": Key(
                Record(
                    {
                        "not_before": Key(DURATION, "How long the source stays after the last wave."),
                        "requires": Key(ListOf(word("all_waves_soaked", "verify_full")), "What must be true by then."),
                    },
                    required=("not_before",),
                ),
                "When the source may be taken down; Watershed deletes nothing.",
            ),
        },
        required=("flow", "waves"),
    ),
)
