"""The options of `kafka-batches`: where to look, what to read, how. They hold references only, never a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from watershed.spark.errors import WrongUse
from watershed.topology.bounded_json import parse_json_object
from watershed.topology.plan import Plan, PlanCluster, decode_plan

if TYPE_CHECKING:
    from watershed.topology.selectors import TopicSelection

RowKind = Literal["batches", "records", "sums"]
IsolationOption = Literal["read_committed", "read_uncommitted"]
EARLIEST, LATEST = -2, -1  # as in Spark's own Kafka source, and in ListOffsets
OffsetsByTopic = Mapping[str, Mapping[int, int]]  # topic → partition → offset

_READING: Final = {
    "topology": "path of the topology file, its folder, or a plan that `topology compile` wrote",
    "cluster": "alias of the cluster in it; may be left out where it has only one",
    "topics": "names and globs, separated by commas",
    "topicsRegex": "regular expression for full names, beside or instead of `topics`",
    "partitions": "partition numbers and ranges: 0,3,8-11",
    "startingOffsets": 'earliest, latest, or {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)',
    "endingOffsets": "the same; exclusive",
    "startingTimestamp": "ms since 1970: the first record of at least that time",
    "endingTimestamp": "ms since 1970: in front of the first record of at least that time",
    "rows": "batches, records, or sums",
    "by": "of rows=sums: what is summed up, records (fingerprints) or batches (digests)",
    "chunk": "of rows=sums: offsets a row; without it a row is a task's range",
    "columns": "those that are wanted, separated by commas (payload costs most)",
    "isolation": "read_committed, or read_uncommitted: everything, with markers and aborted batches",
    "minPartitions": "about how many tasks a read becomes, where there is enough to read",
    "maxOffsetsPerPartition": "offsets that one task reads at most",
    "pushdown": "true: take part in filter pushdown (see docs/kafka-batches.md before)",
    "maxOffsetsPerTrigger": "of streams: offsets that a micro-batch takes at most",
    "failOnDataLoss": "true; false is refused",
}
_WRITING: Final = {
    "topology": _READING["topology"],
    "cluster": _READING["cluster"],
    "topic": "target topic of all rows; without it the column topic names one for each",
    "transactionTimeout": "seconds that a task's transaction may stay open before the job is committed",
}
_BY_SPARK: Final = frozenset({"checkpointlocation", "queryname"})  # what Spark lays among the options of a stream


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. `starting` and `ending`: EARLIEST, LATEST or places. chunk and limit in offsets."""

    cluster: PlanCluster
    topics: TopicSelection
    starting: int | OffsetsByTopic | None
    ending: int | OffsetsByTopic
    starting_time: int | None = None
    ending_time: int | None = None
    partitions: frozenset[int] | None = None
    rows: RowKind = "batches"
    by: Literal["records", "batches"] = "records"
    chunk: int | None = None
    columns: tuple[str, ...] = ()
    isolation: IsolationOption = "read_committed"
    min_partitions: int = 16
    max_offsets: int = 1_000_000
    pushdown: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write. timeout in seconds."""

    cluster: PlanCluster
    topic: str | None
    timeout: int = 600


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Raises WrongUse, and what a topology file that cannot be compiled raises."""
    given = _Given(options, _READING)
    selection = _selection(given)
    if given.flag("failOnDataLoss", True) is False:
        raise WrongUse(
            "failOnDataLoss=false: this source never goes on over lost records in silence. Start again from where the "
            "log begins now (a new checkpoint, or startingOffsets), so that the loss stands in your own configuration"
        )
    rows: RowKind = given.one_of("rows", get_args(RowKind), "batches")
    by: Literal["records", "batches"] = given.one_of("by", ("records", "batches"), "records")
    isolation: IsolationOption = given.one_of("isolation", get_args(IsolationOption), "read_committed")
    if rows != "batches" and isolation == "read_uncommitted":
        raise WrongUse(f"rows={rows} are of committed records; isolation=read_uncommitted goes with rows=batches")
    for offsets, time in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if given.text(offsets) and given.text(time):
            raise WrongUse(f"{offsets} and {time} are both given; choose one")
    return ReadOptions(
        cluster=given.cluster(),
        topics=selection,
        starting=given.places("startingOffsets"),
        ending=LATEST if (ending := given.places("endingOffsets")) is None else ending,
        starting_time=given.number("startingTimestamp", least=0),
        ending_time=given.number("endingTimestamp", least=0),
        partitions=given.numbers("partitions"),
        rows=rows,
        by=by,
        chunk=given.number("chunk"),
        columns=tuple(name.strip() for name in (given.text("columns") or "").split(",") if name.strip()),
        isolation=isolation,
        min_partitions=given.number("minPartitions") or 16,
        max_offsets=given.number("maxOffsetsPerPartition") or 1_000_000,
        pushdown=given.flag("pushdown", False),
        limit=given.number("maxOffsetsPerTrigger"),
    )


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Raises WrongUse, and what a topology file that cannot be compiled raises."""
    given = _Given(options, _WRITING)
    return WriteOptions(given.cluster(), given.text("topic"), given.number("transactionTimeout") or 600)


def parse_row_options(options: Mapping[str, str]) -> tuple[RowKind, tuple[str, ...]]:
    """Rows and columns alone: what a schema needs, without a look at the topology file. Raises WrongUse."""
    given = _Given(options, _READING)
    names = tuple(name.strip() for name in (given.text("columns") or "").split(",") if name.strip())
    return given.one_of("rows", get_args(RowKind), "batches"), names


@dataclass(frozen=True, slots=True)
class _Given:
    """Options as text, names in whatever case."""

    options: Mapping[str, str]
    known: Mapping[str, str]
    by_name: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {name.lower(): value for name, value in self.options.items()})
        unknown = set(self.by_name) - {name.lower() for name in self.known} - _BY_SPARK
        if unknown:
            raise WrongUse(
                f"kafka-batches has no option {', '.join(sorted(unknown))} here; it has {', '.join(sorted(self.known))}"
            )

    def text(self, name: str) -> str | None:
        return (self.by_name.get(name.lower()) or "").strip() or None

    def number(self, name: str, *, least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise WrongUse(f"{name}={text} is not a whole number of at least {least}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise WrongUse(f"{name}={text} is neither true nor false")
        return text == "true"

    def one_of(self, name: str, values: tuple[str, ...], default: str) -> Any:
        text = self.text(name) or default
        if text not in values:
            raise WrongUse(f"{name}={text} is not one of {', '.join(values)}")
        return text

    def numbers(self, name: str) -> frozenset[int] | None:
        text = self.text(name)
        if text is None:
            return None
        found: set[int] = set()
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            if not first.isdigit() or not (last or first).isdigit():
                raise WrongUse(f"{name}={text}: `{part.strip()}` is neither a number nor a range like 8-11")
            found.update(range(int(first), int(last or first) + 1))
        return frozenset(found)

    def places(self, name: str) -> int | OffsetsByTopic | None:
        text = self.text(name)
        if text is None:
            return None
        if text in ("earliest", "latest"):
            return EARLIEST if text == "earliest" else LATEST
        try:
            value = parse_json_object(text)
            found = {
                str(topic): {int(number): int(offset) for number, offset in each.items()}
                for topic, each in value.items()
            }
        except (ArithmeticError, ValueError, AttributeError, TypeError):
            raise WrongUse(f"{name}={text[:100]}: write {self.known[name]}") from None
        if any(offset < EARLIEST for each in found.values() for offset in each.values()):
            raise WrongUse(f"{name}: -2 is earliest, -1 is latest, and nothing is below them")
        return found

    def cluster(self) -> PlanCluster:
        path = self.text("topology")
        if path is None:
            raise WrongUse(f"the option topology is missing: {self.known['topology']}")
        plan = _plan(Path(path))
        alias = self.text("cluster")
        if alias is None and len(plan.clusters) == 1:
            return plan.clusters[0]
        if alias is None:
            names = ", ".join(cluster.alias for cluster in plan.clusters)
            raise WrongUse(f"the option cluster is missing: {path} has {names}")
        return plan.cluster(alias)


def _plan(path: Path) -> Plan:
    if path.suffix == ".json":
        try:
            return decode_plan(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise WrongUse(f"the option topology: {path.absolute()} cannot be read ({error.strerror})") from None
    from watershed.topology import compile_path

    return compile_path(path)


def _selection(given: _Given) -> TopicSelection:
    from watershed.topology.selectors import Selector, TopicSelection

    found = [
        Selector("glob" if set(name) & set("*?") else "literal", name)
        for name in (part.strip() for part in (given.text("topics") or "").split(","))
        if name
    ]
    if expression := given.text("topicsRegex"):
        found.append(Selector("regex", expression))
    if not found:
        raise WrongUse(f"the option topics is missing: {_READING['topics']}")
    for selector in found:
        selector.automaton()  # a pattern outside the language is refused here
    return TopicSelection(include=tuple(found))
