"""`pattern`: one of five shapes that expand to flows and to nothing else. Each takes the settings of its flows."""

from __future__ import annotations

from watershed.topology.language.flow import DEFAULTS_SHAPE, build_settings_shape
from watershed.topology.language.scalars import NAME_LIST_SHAPE, NAME_SHAPE, build_enum_shape
from watershed.topology.yaml_shapes import NamedShape, RecordShape, ShapeKey

PATTERN_SHAPE = NamedShape(
    "pattern",
    RecordShape(
        {
            "hub_and_spoke": ShapeKey(
                RecordShape(
                    {
                        "hub": ShapeKey(NAME_SHAPE, "The cluster in the middle."),
                        "spokes": ShapeKey(NAME_LIST_SHAPE, "The clusters around it."),
                        "up": ShapeKey(DEFAULTS_SHAPE, "Settings of the flows spoke → hub; left out: no such flows."),
                        "down": ShapeKey(
                            DEFAULTS_SHAPE, "Settings of the flows hub → every spoke; left out: no such flows."
                        ),
                    },
                    required=("hub", "spokes"),
                ),
                "One hub, many spokes, up, down or both ways.",
            ),
            "active_active": ShapeKey(
                build_settings_shape(
                    "active_active",
                    {
                        "via": ShapeKey(
                            build_enum_shape("aggregate", "direct"),
                            "`aggregate`: every regional cluster into every aggregate one, no way back; "
                            "`direct`: every member to every other.",
                        ),
                        "regionals": ShapeKey(NAME_LIST_SHAPE, "Where producers write (via aggregate)."),
                        "aggregates": ShapeKey(NAME_LIST_SHAPE, "Where consumers read (via aggregate)."),
                        "members": ShapeKey(NAME_LIST_SHAPE, "The clusters of a direct mesh."),
                    },
                    ("via",),
                ),
                "Several clusters that are written to at the same time.",
            ),
            "active_standby": ShapeKey(
                build_settings_shape(
                    "active_standby",
                    {
                        "active": ShapeKey(NAME_SHAPE, "The cluster that applications use."),
                        "standby": ShapeKey(NAME_SHAPE, "The cluster that waits."),
                        "failback": ShapeKey(
                            RecordShape(
                                {
                                    "reverse": ShapeKey(
                                        build_enum_shape("declared_paused", "none"),
                                        "`declared_paused` declares the way back; it starts only in a failback.",
                                    ),
                                    "on_divergence": ShapeKey(
                                        build_enum_shape("stop"),
                                        "Records that only the old active has are listed, never merged.",
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
            "aggregation": ShapeKey(
                build_settings_shape(
                    "aggregation",
                    {
                        "sources": ShapeKey(NAME_LIST_SHAPE, "The clusters that are collected."),
                        "target": ShapeKey(NAME_SHAPE, "The cluster that they are collected in."),
                    },
                    ("sources", "target"),
                ),
                "Many clusters into one.",
            ),
            "chain": ShapeKey(
                build_settings_shape(
                    "chain", {"path": ShapeKey(NAME_LIST_SHAPE, "The clusters in the order of the hops.")}, ("path",)
                ),
                "Hop by hop from the first cluster to the last.",
            ),
        },
        one_of=True,
    ),
)
