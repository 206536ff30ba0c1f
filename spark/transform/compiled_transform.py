"""`transform` of a flow as a plan of Spark: parsed, checked, typed, and hashed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from watershed.clusters.registry.subject_names import SUBJECT_SIDES
from watershed.spark.transform.changed_rows import (
    DECIDED_COLUMNS,
    TRANSFORMED_COLUMNS,
    ChangeOrder,
    pack_assigned,
    pack_rows,
)
from watershed.spark.transform.column_types import find_unfit_column
from watershed.spark.transform.expression_rules import WrongExpression, check_expression
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.record_rows import (
    FIELDS_COLUMN,
    RECORD_COLUMNS,
    SECRET_COLUMN,
    RowNeeds,
    open_assigned,
    open_parts,
)
from watershed.topology.record_transform import (
    REGISTRY_FORMATS,
    ChangedPart,
    RecordTransform,
    parse_changed_part,
    replace_secrets,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_CORRUPT: Final = "_corrupt_record"
_JSON_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_KEPT: Final = '{"v":'  # what to_json puts in front of a value


@dataclass(frozen=True, slots=True)
class CompiledTransform:
    """hash: of the plan that Spark runs, with its release: what it does to a record depends on nothing else."""

    transform: RecordTransform
    hash: str

    def apply(self, parts: DataFrame) -> DataFrame:
        """A column `part` of pickled parts → rows of TRANSFORMED_COLUMNS. Nothing is shuffled."""
        needs = RowNeeds.of(self.transform, plan_fields(self.transform))
        opened = parts.mapInArrow(partial(open_parts, needs), build_record_columns(self.transform))
        return change_records(opened, self.transform).mapInArrow(partial(pack_rows, self._order), TRANSFORMED_COLUMNS)

    def plan_assigned(self, session: SparkSession, assignments: str, output: str, tasks: int) -> Callable[[], object]:
        """What does the same of the parts that memory assigns to so many tasks at the time when they run
        (`SharedMemory.assign`), each time that it is called; each task leaves an answer in the output
        (`SharedMemory.read_answers`). assignments, output: paths of that memory."""
        needs = RowNeeds.of(self.transform, plan_fields(self.transform))
        numbers = session.range(0, tasks, 1, tasks)
        opened = numbers.mapInArrow(partial(open_assigned, needs, assignments), build_record_columns(self.transform))
        changed = change_records(opened, self.transform)
        packed = changed.mapInArrow(partial(pack_assigned, self._order, output), "nothing int")
        # An action of a DataFrame would plan it anew for each job.
        return packed._jdf.queryExecution().toRdd().count  # type: ignore[no-any-return]

    @property
    def _order(self) -> ChangeOrder:
        return ChangeOrder.of(self.transform, plan_fields(self.transform))


def compile_transform(session: SparkSession, transform: RecordTransform) -> CompiledTransform:
    """Raises WrongExpression, which names the place in the file."""
    for error in find_wrong_expressions(session, transform):
        raise error
    empty = session.createDataFrame([], build_record_columns(transform))
    plan = change_records(empty, transform)._jdf.queryExecution().analyzed()
    lines = re.sub(r"#\d+L?", "", str(plan.toString())).splitlines()
    told = "\n".join((session.version, *lines[:-1]))  # the last line is where rows come from
    return CompiledTransform(transform, hashlib.sha256(told.encode()).hexdigest())


def find_wrong_expressions(session: SparkSession, transform: RecordTransform) -> Iterator[WrongExpression]:
    """One for each schema or expression that cannot be used."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    for name, schema in transform.schemas:
        try:
            StructType.fromDDL(schema)
        except PySparkException as error:
            yield WrongExpression(f"schema.{name}", schema, _shorten(error))
            return
    try:
        plan_fields(transform)
    except WrongExpression as error:
        yield error
        return
    seen = _see(session.createDataFrame([], build_record_columns(transform)), transform)
    for path, text in transform.expressions:
        try:
            _parse(session, path, text)
            _check_type(seen, transform, path, text, _find_expected(transform, path, text))
        except WrongExpression as error:
            yield error


def change_records(records: DataFrame, transform: RecordTransform) -> DataFrame:
    """Rows of `build_record_columns` → DECIDED_COLUMNS and a column `_change_N` for each of `transform.changes`."""
    from pyspark.sql import functions as f

    seen = _see(records, transform)
    keep = f.lit(True) if transform.where is None else f.expr(_with_columns(transform, transform.where))
    judged = seen.withColumn("_keep", f.when(f.col("_problem").isNull() & ~f.col("_left_out"), keep))
    columns = [f.col(name) for name in DECIDED_COLUMNS]
    for number, (path, text) in enumerate(transform.changes):
        value = _encode(f.expr(_with_columns(transform, text)), parse_changed_part(path), transform)
        columns.append(f.when(f.col("_keep"), value).alias(f"_change_{number}"))
    return judged.select(*columns)


def build_record_columns(transform: RecordTransform) -> str:
    """Those of RECORD_COLUMNS that expressions look at, a struct for keys and values whose schemas stand in a registry,
    and a column for each secret, as DDL."""
    sent = [f"{name} {RECORD_COLUMNS[name]}" for name in RowNeeds.of(transform).columns]
    known = dict(transform.schemas)
    fields = [
        f"{FIELDS_COLUMN.format(name)} struct<{known[name]}>" for name in transform.registry_sides if name in known
    ]
    secrets = [f"{SECRET_COLUMN.format(name)} string" for name, _ in transform.secrets]
    return ", ".join((*sent, *fields, *secrets))


def plan_fields(transform: RecordTransform) -> tuple[FieldPlan, ...]:
    """What is read and changed in keys and values whose schemas stand in a registry. A session must be open.

    Raises WrongExpression for a column that no field of the format can be read into."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    found = []
    for side in SUBJECT_SIDES:
        form = transform.find_format(side)
        if form not in REGISTRY_FORMATS:
            continue
        ddl = dict(transform.schemas).get(side, "")
        try:
            columns = to_arrow_type(StructType.fromDDL(ddl), timezone="UTC")
        except PySparkException as error:
            raise WrongExpression(f"schema.{side}", ddl, _shorten(error)) from None
        if unfit := find_unfit_column(columns, form):
            raise WrongExpression(f"schema.{side}", ddl, f"no field of {form} is {unfit}")
        sets, drops = (
            tuple(part.names for path in paths if (part := parse_changed_part(path)).part == side and part.names)
            for paths in (dict(transform.changes), transform.drops)
        )
        found.append(FieldPlan(side, form, columns, sets, drops))
    return tuple(found)


def _with_columns(transform: RecordTransform, text: str) -> str:
    return replace_secrets(text, {name: f"`{SECRET_COLUMN.format(name)}`" for name, _ in transform.secrets})


def _see(records: DataFrame, transform: RecordTransform) -> DataFrame:
    """With the columns that expressions may name. A JSON text that does not fit its schema is a problem of its
    record."""
    from pyspark.sql import functions as f

    records = records.withColumns(
        {name: f.lit(None).cast(kind) for name, kind in RECORD_COLUMNS.items() if name not in records.columns}
    )
    problem, seen = f.col("_problem"), {}
    for name, form in (("key", transform.key_format), ("value", transform.value_format)):
        schema = dict(transform.schemas).get(name)
        if form == "bytes" or (form in REGISTRY_FORMATS and schema is None):
            seen[name] = f.col(f"_{name}")
        elif form in REGISTRY_FORMATS:
            seen[name] = f.col(FIELDS_COLUMN.format(name))
        elif form == "string" or schema is None:
            seen[name] = f.col(f"_{name}_text")
        else:
            parsed = f.from_json(f.col(f"_{name}_text"), f"{schema}, {_CORRUPT} string", _JSON_OPTIONS)
            seen[name] = parsed
    columns = {**seen, "timestamp": f.timestamp_millis(f.col("_timestamp"))}
    found = records.withColumns(columns)
    for name in SUBJECT_SIDES:
        if name in dict(transform.schemas) and transform.find_format(name) == "json":
            missing = f.col(name).isNull() | f.col(f"{name}.{_CORRUPT}").isNotNull()
            told = f.lit(f"the {name} is no JSON object that fits `transform.schema.{name}`")
            problem = f.coalesce(problem, f.when(f.col(f"_{name}_text").isNotNull() & missing, told))
    return found.withColumn("_problem", problem)


def _encode(value: Column, part: ChangedPart, transform: RecordTransform) -> Column:
    from pyspark.sql import functions as f

    if part.part == "headers" or not part.names:
        return value.cast("binary")
    if transform.find_format(part.part) in REGISTRY_FORMATS:
        return value.cast(_find_declared(transform, part))  # the type that it has already, or null's
    text = f.to_json(f.struct(value.alias("v")), {"ignoreNullFields": "false"})
    return f.substring(text, len(_KEPT) + 1, f.length(text) - f.lit(len(_KEPT) + 1)).cast("binary")


def _find_declared(transform: RecordTransform, part: ChangedPart) -> DataType:
    """The type that `schema` gives to a field of the key or value. Raises KeyError with the name that it lacks."""
    from pyspark.sql.types import StructType

    found: DataType = StructType.fromDDL(dict(transform.schemas)[part.part])
    for name in part.names:
        if not isinstance(found, StructType) or name not in found.fieldNames():
            raise KeyError(name)
        found = found[name].dataType
    return found


def _parse(session: SparkSession, path: str, text: str) -> None:
    from pyspark.errors import PySparkException

    try:
        tree = session._jsparkSession.sessionState().sqlParser().parseExpression(text)
    except PySparkException as error:
        raise WrongExpression(path, text, _shorten(error)) from None
    check_expression(tree, path, text)


def _check_type(seen: DataFrame, transform: RecordTransform, path: str, text: str, expected: tuple[str, ...]) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    try:
        selected = seen.select(f.expr(_with_columns(transform, text)).alias("found"))
        kind = selected.schema["found"].dataType
    except PySparkException as error:
        raise WrongExpression(path, text, _shorten(error)) from None
    if not all(bool(each.deterministic()) for each in _list_expressions(selected)):
        raise WrongExpression(path, text, "it is not deterministic, and a proof could not repeat it")
    if expected and kind.simpleString() not in (*expected, "void"):
        raise WrongExpression(
            path, text, f"it gives {_name_type(kind)}, and {' or '.join(expected)} is needed; write a cast"
        )


def _list_expressions(frame: DataFrame) -> Iterator[Any]:
    found = frame._jdf.queryExecution().analyzed().expressions()
    for at in range(found.size()):
        yield found.apply(at)


def _find_expected(transform: RecordTransform, path: str, text: str) -> tuple[str, ...]:
    """The types that an expression may have there, as Spark calls them; none: any that JSON has. Raises WrongExpression
    where the type of a field is not said."""
    if path == "where":
        return ("boolean",)
    part = parse_changed_part(path.removeprefix("set."))
    if part.part == "headers" or not part.names:
        return ("string", "binary")
    if transform.find_format(part.part) not in REGISTRY_FORMATS:
        return ()
    try:
        return (_find_declared(transform, part).simpleString(),)
    except KeyError as error:
        lacking = f"`schema.{part.part}` has no field {error}; a field that is set keeps its type, so say it there"
        raise WrongExpression(path, text, lacking) from None


def _name_type(kind: DataType) -> str:
    return kind.simpleString()


def _shorten(error: Exception) -> str:
    """What Spark says, without the plan that stands behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = re.sub(r"\s*SQLSTATE: \w+", "", lines[0] if lines else type(error).__name__)
    first = re.sub(rf"(, `{_CORRUPT}`|; line \d+ pos \d+)", "", first)
    return first.rstrip(".; ")
