"""`pattern`: one of five shapes that expand to flows and to nothing else. Each takes the settings of its flows."""

from __future__ import annotations

from topology.language.flow import DEFAULTS, settings
from topology.language.scalars import NAME, NAMES, word
from topology.shapes import Key, Named, Record

PATTERN = Named(
    "pattern",
    Record(
        {
            "hub_and_spoke": Key(
                Record(
                    {
                        "hub": Key(NAME, "The cluster in the middle."),
                        "spokes": Key(NAMES, "The clusters around it."),
                        "up": Key(DEFAULTS, "Settings of the flows spoke → hub; left out: no such flows."),
                        "down": Key(DEFAULTS, "Settings of the flows hub → every spoke; left out: no such flows."),
                    },
                    required=("hub", "spokes"),
                ),
                "One hub, many spokes, up, down or both ways.",
            ),
            "active_active": Key(
                settings(
                    "active_active",
                    {
                        "via": Key(
                            word("aggregate", "direct"),
                            "`aggregate`: every regional cluster into every aggregate one, no way back; "
                            "`direct`: every member to every other.",
                        ),
                        "regionals": Key(NAMES, "Where producers write (via aggregate)."),
                        "aggregates": Key(NAMES, "Where consumers read (via aggregate)."),
                        "members": Key(NAMES, "The clusters of a direct mesh."),
                    },
                    ("via",),
                ),
                "Several clusters that are written to at the same time.",
            ),
            "active_standby": Key(
                settings(
                    "active_standby",
                    {
                        "active": Key(NAME, "The cluster that applications use."),
                        "standby": Key(NAME, "The cluster that waits."),
                        "failback": Key(
                            Record(
                                {
                                    "reverse": Key(
                                        word("declared_paused", "none"),
                                        "`declared_paused` declares the way back; it starts only in a failback.",
                                    ),
                                    "on_divergence": Key(
                                        word("stop"), "Records that only the old active has are listed, never merged."
                                    ),
                                },
                                required=("reverse",),
                            ),
                            "The way back after a failover.",
                        ),
                    },
                    ("active", "standby"),
                ),
                "A copy that waits for a failover or a migration.",
            ),
            "aggregation": Key(
                settings(
                    "aggregation",
                    {
                        "sources": Key(NAMES, "The clusters that are collected."),
                        "target": Key(NAME, "The cluster that they are collected in."),
                    },
                    ("sources", "target"),
                ),
                "Many clusters into one.",
            ),
            "chain": Key(
                settings("chain", {"path": Key(NAMES, "The clusters in the order of the hops.")}, ("path",)),
                "Hop by hop from the first cluster to the last.",
            ),
        },
        one_of=True,
    ),
)
