"""`external_flows[]`: copies that other tools make. Topics and naming are said as in `flows`."""

from __future__ import annotations

from watershed.topology.external_flows import EXTERNAL_TOOLS
from watershed.topology.language.flow import FLOW_SETTINGS
from watershed.topology.language.scalars import (
    BOOLEAN_SHAPE,
    IDENTIFIER_SHAPE,
    LINE_SHAPE,
    NAME_SHAPE,
    build_enum_shape,
)
from watershed.topology.yaml_shapes import NamedShape, RecordShape, ShapeKey

_ALIASES = RecordShape(
    {
        "source": ShapeKey(IDENTIFIER_SHAPE, "What the tool calls the source.", "the alias of this file"),
        "target": ShapeKey(IDENTIFIER_SHAPE, "What the tool calls the target.", "the alias of this file"),
    }
)
EXTERNAL_FLOW_SHAPE = NamedShape(
    "external_flow",
    RecordShape(
        {
            "name": ShapeKey(NAME_SHAPE, "What findings, `topology plan` and `topology status` call it."),
            "tool": ShapeKey(build_enum_shape(*EXTERNAL_TOOLS), "Who makes the copy."),
            "source": ShapeKey(NAME_SHAPE, "The alias that records come from."),
            "target": ShapeKey(NAME_SHAPE, "The alias that they go to."),
            "topics": FLOW_SETTINGS["topics"],
            "naming": ShapeKey(
                FLOW_SETTINGS["naming"].shape,
                "What topics are called at the target.",
                "the tool's own: `{policy: prefix}` for `mirrormaker2`, else `{policy: identity}`",
            ),
            "aliases": ShapeKey(
                _ALIASES, "How the tool calls the two clusters, where names have them and they differ from this file's."
            ),
            "enabled": ShapeKey(
                BOOLEAN_SHAPE, "`false`: it has stopped. What it copied stands in the topics still.", "`true`"
            ),
            "marks_with": ShapeKey(
                LINE_SHAPE,
                "A header that the tool puts on every record that it writes. Our flows tell its records apart by it.",
                "none",
            ),
            "leaves_out": ShapeKey(
                LINE_SHAPE, "A header: the tool does not copy records that have it, such as those of our flows.", "none"
            ),
        },
        required=("name", "tool", "source", "target", "topics"),
    ),
)
