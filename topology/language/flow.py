"""`flows[]`, `defaults` and the settings that patterns take: what travels, under which name, how, and by when."""

from __future__ import annotations

import re
from collections import Counter

from topology.language.scalars import (
    BOOLEAN,
    DURATION,
    EXCLUDED,
    IDENTIFIER,
    IDENTIFIER_NAMES,
    LEVEL,
    LINE,
    MODE,
    NAME,
    ONE_LINE_NAMES,
    RATE,
    REPLICAS,
    SELECTORS,
    SEPARATOR,
    SHARE,
    SOME_RATE,
    TEXT,
    TEXTS,
    TOPIC_NAME,
    identifier,
    integer,
    one_line,
    word,
)
from topology.model import Value
from topology.naming import template
from topology.shapes import Converted, Key, MapOf, Named, Record, Shape

_MAX_TEMPLATE = 249  # apache/kafka Topic.java


def _naming(value: Value) -> None:
    policy = value.get("policy")
    needs = {"template": "template", "map": "map"}.get(policy)
    for name in ("template", "map", "separator"):
        if name in value.fields and policy != {"separator": "prefix"}.get(name, name):
            raise ValueError(f"policy {policy} takes no `{name}`")
    if needs and needs not in value.fields:
        raise ValueError(f"policy {policy} needs `{needs}`")
    if policy == "template":
        text = value.get("template")
        fixed = len(re.sub(r"\{(?:topic|source|target)\}", "", text[: 2 * _MAX_TEMPLATE]))
        if fixed > _MAX_TEMPLATE:
            raise ValueError(f"the template has too many characters; a topic's name has at most {_MAX_TEMPLATE}")
        template(text, "s", "t")
    if policy == "map":
        targets = [each.data for each in value.fields["map"].fields.values()]
        twice = sorted(name for name, count in Counter(targets).items() if count > 1)
        if twice:
            raise ValueError(f"two topics are mapped to `{twice[0]}`; a rename must be one-to-one")


def _groups_apart(value: Value) -> None:
    targets = Counter(each.data for each in value.fields.values())
    twice = sorted(name for name, count in targets.items() if count > 1)
    if twice:
        raise ValueError(f"two groups are renamed to `{twice[0]}`; the one that is further would make the other skip")


def _sync(what: str, named: str = "", told: str = "", **more: Key) -> Record:
    """named: what the names in include and exclude are of. told: what `mode` means where nothing is carried over."""
    about = told or f"Whether {what} are carried over, and whether they are kept equal."
    return Record(
        {
            "mode": Key(MODE, about, "`never`"),
            "include": Key(EXCLUDED, f"Only {named or f'these {what}'}.", "all"),
            "exclude": Key(EXCLUDED, f"Not {named or f'these {what}'}; wins over include."),
            **more,
        }
    )


def _lag(value: Value) -> None:
    p99, most = value.get("p99"), value.get("max")
    if p99 is not None and most is not None and p99 > most:
        raise ValueError("`p99` is more than `max`; most records cannot be later than the latest")


_LAG = Converted(
    Record(
        {
            "p99": Key(DURATION, "Ninety-nine of a hundred records are at most so late."),
            "max": Key(DURATION, "No record is later than this while both clusters are up."),
        }
    ),
    _lag,
)
_TOPICS = Record(
    {
        "include": Key(
            SELECTORS,
            "Topics that travel: plain text is one exact name, `{glob: …}` and `{regex: …}` match whole names.",
        ),
        "exclude": Key(EXCLUDED, "Topics that do not; wins over include."),
        "allow_internal": Key(
            BOOLEAN,
            "Lets internal topics travel that `include` names literally; patterns never take one.",
            "`false`",
        ),
    },
    bare_list="include",
)
_NAMING = Converted(
    Record(
        {
            "policy": Key(
                word("identity", "prefix", "template", "map"),
                "`identity` keeps names; `prefix` puts the source's alias in front; `template` and `map` say how.",
            ),
            "separator": Key(SEPARATOR, "What stands between alias and name, for `prefix`.", "`.`"),
            "template": Key(TEXT, "Such as `{topic}.from.{source}`; it names {topic} once and may name {target}."),
            "map": Key(MapOf(TOPIC_NAME), "Source name → target name, one-to-one; other names stay as they are."),
        },
        required=("policy",),
    ),
    _naming,
    "NAM305",
)
_PROVENANCE = Record(
    {
        "guard": Key(
            word("producer_id", "none", old={"path": "producer_id"}),
            "`producer_id` stops records that have been at the target, by the producer id of their batch.",
            "`producer_id`",
        ),
        "header": Key(TEXT, "Also append a hop to this record header; costs the fast path."),
        "forward": Key(
            word("all", "local"),
            "`local` takes only records born at the source, not those that another flow brought there.",
            "`all`; `local` in a direct mesh of three or more",
        ),
    }
)
_MERGE = Record(
    {
        "allowed": Key(BOOLEAN, "Says out loud that several writers share the target topics.", "`false`"),
        "duplicates": Key(
            word("forbidden", "allowed"), "Whether a record may arrive by more than one way.", "`forbidden`"
        ),
        "partitions": Key(word("equal", "any"), "Whether all sources need the same partition count.", "`equal`"),
        "compacted": Key(word("forbid", "allow"), "Whether compacted topics may be merged.", "`forbid`"),
    }
)
_DELIVERY = Record(
    {
        "semantics": Key(
            word("exactly_once", "at_least_once", "transactions"),
            "`exactly_once` by sequence numbers; `transactions` by Kafka's transactions.",
            "`exactly_once`",
        ),
        "isolation": Key(
            word("read_committed", "read_uncommitted"), "Whether aborted records stay out.", "`read_committed`"
        ),
        "start": Key(word("earliest", "latest"), "Where a topic begins that was never copied.", "`earliest`"),
        "on_gap": Key(word("stop", "continue"), "What happens when records expired before they were copied.", "`stop`"),
        "rejected": Key(
            word("stop", "quarantine"), "What happens to a record that the target does not take.", "`stop`"
        ),
    }
)
_WORKERS = Record(
    {
        "engine": Key(word("spark", "process"), "Who hosts the workers.", "`spark`"),
        "count": Key(integer(1, 1_000), "How many workers the fleet should have for this flow.", "1"),
        "near": Key(word("source", "target"), "On which side they run.", "`target`"),
        "quota": Key(RATE, "The most bytes a second that the flow copies.", "no bound"),
        "weight": Key(integer(1, 1_000), "Its share where flows compete for one worker.", "1"),
        "discovery": Key(DURATION, "How often new topics and partitions are looked for.", "`10s`"),
    }
)
_SYNC = Record(
    {
        "configs": Key(
            Record(
                {
                    "mode": Key(
                        MODE,
                        "`once`: when a topic is created; `continuous`: also kept equal, where that is safe.",
                        "`once`",
                    ),
                    "include": Key(TEXTS, "Only these config keys."),
                    "exclude": Key(TEXTS, "Never these keys.", "throttles, min.insync.replicas and the like"),
                    "set": Key(
                        MapOf(LINE, one_line, names=ONE_LINE_NAMES),
                        "Config key → value that target topics get, whatever the source says.",
                    ),
                }
            ),
            "Topic configs.",
        ),
        "acls": Key(
            _sync(
                "ACLs",
                "those of these topics and groups, by their names at the source",
                include_write=Key(
                    word("never", "on_failover", "always"),
                    "When rights to write are given at the target; `on_failover` shows them, and holds them back until "
                    "`topology migrate` or `topology failover` gives them, or the file says `always`.",
                    "`never`",
                ),
            ),
            "Access rights to topics and groups.",
        ),
        "groups": Key(
            _sync(
                "consumer groups",
                interval=Key(DURATION, "How often positions are translated and written.", "`10s`"),
                when_target=Key(word("empty"), "Only into groups without members.", "`empty`"),
                rename=Key(
                    Converted(MapOf(IDENTIFIER, identifier, names=IDENTIFIER_NAMES), _groups_apart),
                    "Group id at the source → id at the target; the others keep theirs.",
                ),
            ),
            "Positions of groups, translated exactly; those of tools (`connect-*`, …) only where `include` names them.",
        ),
        "quotas": Key(
            _sync("client quotas", "those of these users and client ids (`default` for the defaults)"), "Client quotas."
        ),
        "users": Key(
            _sync(
                "SCRAM users",
                told="Whether `topology plan` (`once`), and the status as well (`continuous`), tell them.",
            ),
            "SCRAM users: those that lack are told, since brokers never hand out credentials.",
        ),
        "schemas": Key(
            _sync(
                "schema subjects",
                ids=Key(
                    word("preserve", "translate"),
                    "Whether schemas keep their ids at the target, or get others there, which are then written into "
                    "the records on their way.",
                    "`preserve`",
                ),
                subjects=Key(word("keep", "follow_topic"), "Whether subjects are renamed with their topics.", "`keep`"),
            ),
            "Schemas between the two clusters' registries: the subjects called after topics of the flow, or those that "
            "`include` names, and what they refer to.",
        ),
    }
)
_SLO = Record(
    {
        "lag": Key(_LAG, "How late records may be at the target."),
        "end_to_end": Key(_LAG, "The same over a whole chain."),
        "outage_allowance": Key(DURATION, "How long the flow may stand still without loss; retention must cover it."),
        "rpo": Key(DURATION, "How much may be lost when the source dies; zero needs a stretch cluster."),
        "rto": Key(DURATION, "How long applications may stand still in a failover."),
        "on_breach": Key(word("alert", "pause", "fail"), "What happens when a budget is exceeded.", "`alert`"),
    }
)
SETTINGS: dict[str, Key] = {
    "topics": Key(Named("topics", _TOPICS), "Which topics travel."),
    "naming": Key(Named("naming", _NAMING), "What topics are called at the target.", "`{policy: identity}`"),
    "provenance": Key(Named("provenance", _PROVENANCE), "How loops are stopped, and whether records travel on."),
    "merge": Key(Named("merge", _MERGE), "Several writers into one target topic, where that is meant."),
    "offsets": Key(
        word("mapped", "aligned"),
        "`aligned`: every record has the same offset on both sides; `mapped`: offsets are translated exactly.",
        "`mapped`",
    ),
    "state": Key(word("running", "paused"), "Whether the flow runs once it is applied.", "`running`"),
    "replication_factor": Key(REPLICAS, "Of topics created at the target.", "the source's"),
    "partitions": Key(
        Record(
            {
                "mode": Key(word("grow", "fixed"), "Whether target topics grow with the source's.", "`grow`"),
                "mapping": Key(word("preserve", "key"), "`preserve` keeps each record in its partition.", "`preserve`"),
            }
        ),
        "Partition counts.",
    ),
    "delivery": Key(Named("delivery", _DELIVERY), "What is promised for each record."),
    "workers": Key(Named("workers", _WORKERS), "Who copies, how many, how fast."),
    "sync": Key(Named("sync", _SYNC), "What else is carried over beside records."),
    "slo": Key(Named("slo", _SLO), "Budgets: what the flow promises and rules check."),
    "verify": Key(
        Record(
            {
                "every": Key(DURATION, "How often Airflow proves the flow anew.", "only on demand"),
                "level": Key(LEVEL, "How deep it looks on that schedule.", "`L1`"),
                "rate": Key(
                    SOME_RATE,
                    "The most that a proof reads of each of the two clusters, all its tasks together; the smallest of "
                    "the flows that are proven together counts.",
                    "no bound",
                ),
                "fetches": Key(
                    integer(1, 1000),
                    "How many tasks of a proof may read from one broker at the same time.",
                    "as many as Spark runs",
                ),
                "pause_at_lag": Key(
                    DURATION,
                    "A proof stops reading while records of the flow wait longer than this; it goes on when they do "
                    "not, and after ten minutes in any case.",
                    "never",
                ),
                "recheck": Key(
                    SHARE, "The share of what earlier proofs have shown that an incremental one reads again.", "`1%`"
                ),
            }
        ),
        "The proof: on a schedule, and what it may take.",
    ),
    "expected": Key(
        Record({"peak_ingress": Key(RATE, "The most that producers write at the source into these topics.")}),
        "What is expected of the source.",
    ),
}


def settings(name: str, more: dict[str, Key] | None = None, required: tuple[str, ...] = ()) -> Shape:
    """A section that takes every setting, and `more`."""
    return Named(name, Record({**(more or {}), **SETTINGS}, required))


def unit_of(path: str) -> str:
    """What a setting at a dotted path is measured in: `duration`, `rate`, `size`, or "" for anything else."""
    shape: Shape = Record(SETTINGS)
    for name in path.split("."):
        while isinstance(shape, (Named, Converted)):
            shape = shape.inner
        key = shape.fields.get(name) if isinstance(shape, Record) else None
        if key is None:
            return ""
        shape = key.shape
    name = shape.name.removesuffix("_above_zero") if isinstance(shape, Named) else ""
    return name if name in ("duration", "rate", "size") else ""


FLOW = settings(
    "flow",
    {
        "source": Key(NAME, "The alias that records come from."),
        "target": Key(NAME, "The alias that they go to."),
        "suffix": Key(NAME, "Tells two flows on one route apart: the id is `<source>-to-<target>-<suffix>`."),
    },
    ("source", "target"),
)
DEFAULTS = settings("settings")
