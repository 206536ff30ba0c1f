"""Names that Kafka, its tools and its libraries keep for themselves, by what is in them."""

from __future__ import annotations

import re
from functools import lru_cache

from watershed.topology import kafka_streams
from watershed.topology.finding import FileSpan
from watershed.topology.model import Flow
from watershed.topology.rule import RuleContext

# apache/kafka DefaultTopicFilter.java (`.*[\-\.]internal`, `.*\.replica`, `__.*`), and what slips through it
_HOLDS = (
    (r"__consumer_offsets", "consumer positions of the source"),
    (r"__transaction_state", "the source's open transactions"),
    (r"_schemas", "a schema registry's schemas and ids"),
    (r"watershed\..*", "Watershed's own records about another cluster"),
    (r"connect-.*|mm2-.*|.*[.-]internal", "configuration, positions or status of connectors"),
    (r"_confluent.*", "internal state of a Confluent component"),
    (r".*\.replica", "what another tool copied"),
    (r"__.*", "internal state of the source"),
)


@lru_cache(maxsize=65_536)
def describe_reserved_name(name: str) -> str | None:
    """What an internal topic holds; None for everybody else's topics and for those of Streams."""
    return next((what for pattern, what in _HOLDS if re.fullmatch(pattern, _example(name))), None)


@lru_cache(maxsize=65_536)
def is_streams_name(name: str) -> bool:
    """Whether a Kafka Streams application made this topic for itself."""
    return kafka_streams.is_streams_internal_topic(_example(name))


def _example(glob: str) -> str:
    """A name that a glob matches. What is reserved is so by how a name begins or ends, so one speaks for all."""
    return glob.replace("*", "x").replace("?", "x")


def list_selected_names(context: RuleContext, flow: Flow) -> tuple[str, ...]:
    """Names that the flow selects, and its globs."""
    globs = {each.text for each in flow.plan.topics.include if each.kind == "glob"}
    taken = {text for text in globs if flow.plan.selects(_example(text))}
    return tuple(sorted(taken.union(context.facts.names(flow.source, flow.plan.topics))))


def find_selector_span(flow: Flow, name: str) -> FileSpan:
    """The selector that names it, or the first that takes it."""
    selectors = flow.settings.list("topics", "include")
    exact = (each.span for each in selectors if each.data.text == name)
    taking = (each.span for each in selectors if each.data.matches(name))
    return next(exact, None) or next(taking, None) or flow.settings.where("topics", "include")
