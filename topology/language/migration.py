"""`migration`: moving applications wave by wave, with gates before and after, and the way back."""

from __future__ import annotations

from topology.language.scalars import (
    DURATION,
    HTTP,
    INSTANT,
    LEVEL,
    NAME,
    NAMES,
    RECORDS,
    SHARE,
    TEXT,
    TEXTS,
    TOPIC,
    word,
)
from topology.shapes import Key, ListOf, MapOf, Named, Record

GATE = Named(
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
                        "level": Key(LEVEL, "How deep the proof looks: L0 metadata, L1 the content of every record."),
                        "sample": Key(SHARE, "The share of records looked at.", "`100%`"),
                    },
                    required=("level",),
                ),
                "Spark proves that nothing is missing.",
            ),
            "approval": Key(TEXT, "This person or team says yes."),
            "stragglers": Key(
                Record(
                    {"watch": Key(DURATION, "So long the source's log ends must stand still after the fence.")},
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
        },
        one_of=True,
    ),
)
STRATEGY = word("consumers_first", "producers_first", "fenced")
WAVE = Named(
    "wave",
    Record(
        {
            "name": Key(NAME, "What the wave is called in commands and in the journal."),
            "after": Key(NAMES, "Waves that must be finished first."),
            "topics": Key(ListOf(TOPIC, empty="a wave moves at least one topic"), "Source topics, by name."),
            "consumers": Key(TEXTS, "Group ids; a group belongs to one wave."),
            "producers": Key(TEXTS, "Application names."),
            "strategy": Key(STRATEGY, "This wave's strategy.", "the migration's"),
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
            "gates": Key(
                Record(
                    {
                        "before": Key(ListOf(GATE), "All must hold before anything is moved."),
                        "after": Key(ListOf(GATE), "All must hold before the wave counts as done."),
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
            "strategy": Key(STRATEGY, "Who moves first.", "`consumers_first`"),
            "applications": Key(
                MapOf(Record({"http": Key(HTTP, "Where the application's own start and stop switch listens.")})),
                "Application → how it is stopped and started; without an entry a person confirms.",
            ),
            "waves": Key(ListOf(WAVE, empty="a migration has at least one wave"), "What moves together."),
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
