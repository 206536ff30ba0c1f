"""The journal when others write to it: forged lines are void and named, with a key forged entries are, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import World, a_migration
from watershed.cli.main import main
from watershed.clusters.control_topics import JOURNAL_TOPIC, ControlWriter
from watershed.clusters.errors import SecretMissing
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.errors import BrokenChain, NothingToSign, Superseded, UnsignedHistory
from watershed.cutover.journal.hash_chain import GENESIS_HASH, RUN_STEP, Journal, JournalChain, JournalEntry
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.cutover.journal.signing import (
    PLAIN_HASH_PREFIX,
    SIGNED_HASH_PREFIX,
    TRUSTING,
    UNSIGNED,
    Signing,
    read_signing_keys,
)
from watershed.cutover.journal.topology_journal import open_journal
from watershed.topology import compile_path
from watershed.topology.plan import decode_plan, encode_plan

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

WHO: dict[str, Any] = {"actor": "ann", "plan_hash": "sha256:1", "wave": "all"}
NEW, OLD = b"the newer key", b"the older key"
SIGNING = Signing((NEW,))
Value = dict[str, Any]


def written(entries: int = 4, signing: Signing = UNSIGNED, log: FakeLog | None = None) -> FakeLog:
    log = FakeLog() if log is None else log
    journal = Journal(log, "shop", "me", signing=signing)
    journal.refresh()
    for number in range(entries):
        journal.append("r1", f"step{number}", "intent", {"n": number}, **WHO)
    return log


def followed(log: FakeLog, signing: Signing = UNSIGNED) -> JournalChain:
    chain = JournalChain("shop", signing=signing)
    chain.follow(log.read(0))
    return chain


def next_entry(log: FakeLog, signing: Signing = UNSIGNED, **changes: Any) -> Value:
    """An outcome that would end the run, behind the newest entry, by who has no other key than that of `signing`."""
    last = log.records[-1]
    fields = {"step": RUN_STEP, "kind": "outcome", "seq": last["seq"] + 1, "previous": last["hash"], "actor": "mallory"}
    return JournalEntry(**(last | fields | {"observation": {"state": "done"}} | changes)).sealed(signing).to_json()


FORGED: dict[str, Callable[[FakeLog], Value]] = {
    "no field but the name": lambda log: {"topology": "shop"},
    "a field too many": lambda log: next_entry(log) | {"more": 1},
    "a field of another type": lambda log: next_entry(log) | {"seq": "4"},
    "a list where text is meant": lambda log: next_entry(log) | {"run": ["r1"]},
    "an observation that is no object": lambda log: next_entry(log) | {"observation": ["state"]},
    "a kind that there is not": lambda log: next_entry(log) | {"kind": "maybe"},
    "text that no file can hold": lambda log: log.records[-1] | {"step": "\ud800"},
    "another's hash": lambda log: next_entry(log) | {"hash": log.records[0]["hash"]},
    "content that does not have its hash": lambda log: next_entry(log) | {"actor": "ann"},
    "a hash that is no ASCII": lambda log: next_entry(log) | {"hash": SIGNED_HASH_PREFIX + "ä" * 64},
    "a hash that no file can hold": lambda log: next_entry(log) | {"hash": SIGNED_HASH_PREFIX + "\ud800" * 64},
    "a hash of no kind": lambda log: next_entry(log) | {"hash": "md5:0"},
    "behind an entry that was never there": lambda log: next_entry(log, previous=PLAIN_HASH_PREFIX + "7" * 64),
    "signed, where the file has no key": lambda log: next_entry(log, Signing((b"mine",))),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("signing", [UNSIGNED, SIGNING], ids=["without a key", "with a key"])
def test_a_line_that_is_no_entry_stops_nobody_and_is_named(forge: Callable[[FakeLog], Value], signing: Signing) -> None:
    log = written(signing=signing)
    log.records.append(forge(log))
    written(2, signing, log)
    chain = followed(log, signing)
    assert [entry.step for entry in chain.entries] == ["step0", "step1", "step2", "step3", "step0", "step1"]
    (named,) = chain.void
    assert (named.offset, named.foreign) == (4, True)
    assert named.why


def test_what_a_line_says_of_itself_is_told() -> None:
    log = written()
    log.records.append(next_entry(log) | {"actor": "ann"})
    assert followed(log).void[0].to_json() == {
        "offset": 4, "why": "its content does not have its hash", "foreign": True, "run": "r1", "step": RUN_STEP,
    }  # fmt: skip


@pytest.mark.parametrize("seal", [UNSIGNED, Signing((b"not the key",))], ids=["not signed", "signed with another key"])
def test_with_a_key_a_forged_entry_does_not_verify(seal: Signing) -> None:
    """Well formed in everything, behind the newest entry: it would end the run, and release its lock."""
    log = written(signing=SIGNING)
    log.records.append(next_entry(log, seal))
    chain = followed(log, SIGNING)
    assert [entry.run for entry in chain.unfinished()] == ["r1"] * 4
    assert [(each.offset, each.why) for each in chain.foreign] == [(4, "it is not signed with this topology's key")]
    log.records.append(next_entry(log, SIGNING, seq=4, previous=chain.root))
    assert followed(log, SIGNING).unfinished() == []


def test_without_a_key_it_counts() -> None:
    """What the key is for."""
    log = written()
    log.records.append(next_entry(log))
    assert followed(log).unfinished() == []


def test_a_signed_entry_of_another_topology_or_another_place_does_not_count() -> None:
    log, other = written(signing=SIGNING), FakeLog()
    Journal(other, "bank", "me", signing=SIGNING).append("r1", RUN_STEP, "outcome", {}, **WHO)
    log.records.append(other.records[0] | {"topology": "shop"})
    log.records.append(log.records[0])  # said again
    chain = followed(log, SIGNING)
    assert (len(chain.entries), [each.foreign for each in chain.void]) == (4, [True, False])


def _change(records: list[Value]) -> None:
    records[1] = records[1] | {"observation": {"n": 99}}


def _change_and_hash(records: list[Value]) -> None:
    records[1] = JournalEntry(**(records[1] | {"observation": {"n": 99}})).sealed().to_json()


def _remove(records: list[Value]) -> None:
    del records[1]


def _cut(records: list[Value]) -> None:
    del records[:1]


@pytest.mark.parametrize(
    ("tamper", "offset"),
    [(_change, 1), (_change_and_hash, 2), (_remove, 1), (_cut, 0)],
    ids=["changed", "changed and hashed anew", "removed", "cut off"],
)
def test_with_a_key_what_was_changed_or_removed_stops_everybody(
    tamper: Callable[[list[Value]], None], offset: int
) -> None:
    """Already at one entry behind it."""
    log = written(3, SIGNING)
    tamper(log.records)
    with pytest.raises(BrokenChain) as broken:
        followed(log, SIGNING)
    assert broken.value.offset == offset


def test_with_a_key_nobody_else_can_break_the_chain() -> None:
    """Without the key a line that cites a void one is void itself."""
    log = written(signing=SIGNING)
    log.records.append(next_entry(log) | {"hash": PLAIN_HASH_PREFIX + "7" * 64})
    log.records.append(next_entry(log, previous=PLAIN_HASH_PREFIX + "7" * 64))
    log.records.append(next_entry(log, Signing((b"mine",)), previous=PLAIN_HASH_PREFIX + "7" * 64))
    written(1, SIGNING, log)
    chain = followed(log, SIGNING)
    assert (len(chain.entries), [each.offset for each in chain.foreign]) == (5, [4, 5, 6])


def test_an_earlier_key_verifies_what_is_older_and_nothing_newer() -> None:
    log = written(2, Signing((OLD,)))
    both = Signing((NEW, OLD))
    written(1, both, log)
    log.records.append(next_entry(log, Signing((OLD,))))
    log.records.append(next_entry(log, UNSIGNED, seq=3, previous=log.records[2]["hash"]))
    written(1, both, log)
    chain = followed(log, both)
    assert [entry.step for entry in chain.entries] == ["step0", "step1", "step0", "step0"]
    assert [(each.offset, each.why) for each in chain.foreign] == [
        (3, "it is signed with an earlier key, behind entries of a newer one"),
        (4, "it is not signed with this topology's key"),
    ]
    with pytest.raises(BrokenChain, match=r"offset 1 was changed .* not signed with this topology's key"):
        followed(log, SIGNING)  # the earlier key is not named any more


def test_of_two_that_sign_at_once_one_counts() -> None:
    log = written(1, SIGNING)
    first, second = (Journal(log, "shop", who, signing=SIGNING) for who in ("first", "second"))
    first.refresh()
    second.refresh()
    first.append("r1", "step1", "intent", {}, **WHO)
    with pytest.raises(Superseded):
        second.append("r2", RUN_STEP, "intent", {}, **WHO)
    chain = followed(log, SIGNING)
    assert ([each.step for each in chain.entries], chain.foreign) == (["step0", "step1"], ())


@pytest.fixture
def before() -> FakeLog:
    """Three entries that were written before there was a key, and one that is nobody's."""
    log = written(3)
    log.records.append({"topology": "shop"})
    return log


def test_unsigned_entries_wait_for_a_person(before: FakeLog) -> None:
    root = before.records[2]["hash"]
    with pytest.raises(UnsignedHistory, match=f"has 3 entries .* up to {root}.*--sign {root}.*--sign none"):
        Journal(before, "shop", "me", signing=SIGNING).refresh()
    chain = followed(before, SIGNING)
    assert (chain.entries, chain.root) == ([], GENESIS_HASH)
    assert [each.offset for each in chain.foreign] == [0, 1, 2, 3]


@pytest.mark.parametrize(("number", "counting"), [(2, 3), (1, 2), (None, 0)], ids=["all", "some", "none"])
def test_signing_takes_them_over_up_to_the_root(before: FakeLog, number: int | None, counting: int) -> None:
    journal = Journal(before, "shop", "me", signing=SIGNING)
    journal.sign(None if number is None else before.records[number]["hash"], actor="ann", plan_hash="sha256:1")
    written(1, SIGNING, before)
    steps = [f"step{n}" for n in range(counting)] + [RUN_STEP, "step0"]
    void = [*range(counting, 3), 3]
    for signing in (SIGNING, TRUSTING):
        chain = followed(before, signing)
        assert [entry.step for entry in chain.entries] == steps
        assert sorted(each.offset for each in chain.foreign) == void
        assert chain.signed == 2
    before.records.append(next_entry(before))  # not signed, behind one that is
    assert len(followed(before, SIGNING).foreign) == len(void) + 1
    with pytest.raises(NothingToSign, match="its newest entries are signed"):
        journal.sign(None, actor="ann", plan_hash="sha256:1")


def test_there_is_nothing_to_sign(before: FakeLog) -> None:
    with pytest.raises(NothingToSign, match="names no key"):
        Journal(before, "shop", "me").sign(None, actor="ann", plan_hash="x")
    with pytest.raises(NothingToSign, match="has the hash sha256:9"):
        Journal(before, "shop", "me", signing=SIGNING).sign("sha256:9", actor="ann", plan_hash="x")
    with pytest.raises(NothingToSign, match="nothing was written without a key"):
        Journal(FakeLog(), "shop", "me", signing=SIGNING).sign(None, actor="ann", plan_hash="x")


def test_who_signs_takes_over_nothing_that_nobody_compared(before: FakeLog) -> None:
    """Somebody writes on between the look and the signature: that stays void."""
    root = before.records[2]["hash"]
    last = FakeLog(before.records[:3])
    before.records.append(next_entry(last))
    Journal(before, "shop", "me", signing=SIGNING).sign(root, actor="ann", plan_hash="x")
    chain = followed(before, SIGNING)
    assert [entry.step for entry in chain.entries] == ["step0", "step1", "step2", RUN_STEP]
    assert chain.unfinished()
    assert [entry.run for entry in chain.unfinished()] == ["r1"] * 3


def test_who_has_no_key_reads_and_says_that_nothing_is_verified() -> None:
    log = written(3, SIGNING)
    chain = followed(log, TRUSTING)
    assert (len(chain.entries), chain.signed, chain.void) == (3, 3, ())
    log.records.append(next_entry(log, Signing((b"mine",))) | {"hash": SIGNED_HASH_PREFIX + "7" * 64})
    written(2, SIGNING, log)
    followed(log, TRUSTING)  # may show what is forged; is never broken by it


def test_a_run_goes_on_whatever_others_write() -> None:
    """After every entry of a whole migration somebody writes what would end it."""
    log, world = FakeLog(), World()

    def intrude(value: Value) -> None:
        log.on_append = None
        log.records.append(next_entry(log, seq=value["seq"] + 1, previous=value["hash"]))
        log.records.append({"topology": "shop", "run": value["run"]})
        log.on_append = intrude

    log.on_append = intrude
    journal = Journal(log, "shop", "first", world.clock, SIGNING)
    assert a_migration(world, log, journal=journal).run().state == "done"
    chain = followed(log, SIGNING)
    assert len(chain.foreign) == 2 * len(chain.entries)
    assert {entry.actor for entry in chain.entries} == {"ann"}


@pytest.mark.kafka
@pytest.mark.parametrize("key", [None, "between us"], ids=["without a key", "with a key"])
def test_on_a_real_broker_a_migration_goes_on_whatever_others_write(
    kafka_pair: Lab, topic_name: str, key: str | None
) -> None:
    """A run is under way. Somebody else writes garbage that names the topology, and with a key also a well formed
    approval and the end of the run, each behind the newest entry."""
    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    signing = UNSIGNED if key is None else Signing((key.encode(),))
    world, first = World(), Journal(JournalTopicLog(cloud), topic_name, "first", signing=signing)
    assert a_migration(world, FakeLog(), journal=first, run_id="r1").run(until_step="start_consumers").state == "paused"
    log = FakeLog([entry.to_json() for entry in first.chain.entries])
    approved = {"outcome": {"approvals": [{"granted": True, "by": "mallory"}]}, "refused": None}
    lines: list[Value] = [
        {"topology": topic_name, "run": "r1", "hash": ["sha256"]},
        next_entry(log) | {"hash": PLAIN_HASH_PREFIX + "7" * 64},
        next_entry(log, previous=PLAIN_HASH_PREFIX + "8" * 64),
    ]
    if key is not None:
        lines += [next_entry(log, step="approve_switch", observation=approved), next_entry(log)]
    with ControlWriter(cloud, "intruder") as writer:
        offsets = [writer.put(JOURNAL_TOPIC, "x", line, 0) for line in lines]
    second = Journal(JournalTopicLog(cloud), topic_name, "second", signing=signing)
    assert [each.offset for each in second.refresh().foreign] == offsets
    assert {entry.run for entry in second.chain.unfinished()} == {"r1"}
    assert a_migration(world, FakeLog(), journal=second, run_id="r1").run().state == "done"
    assert [each.offset for each in second.chain.foreign] == offsets
    assert "mallory" not in {entry.actor for entry in second.chain.entries}


FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: team}}
clusters:
  onprem: {{bootstrap: ["localhost:1"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [a]}}}}
migration:
  flow: onprem-to-cloud
  {journal}
  waves:
    - name: all
      topics: [a]
      gates: {{before: [{{lag: {{max_records: 0, hold: 5s}}}}, {{verify: {{level: L1}}}}]}}
      rollback: {{none: a test}}
"""
KEYED = "journal: {key: {env: WATERSHED_SECRET_KEY}, earlier_keys: [{env: WATERSHED_SECRET_OLD}]}"


def a_file(folder: Path, journal: str, name: str = "shop", cloud: str = "localhost:2") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(FILE.format(name=name, cloud=cloud, journal=journal))
    return path


def test_the_plan_holds_where_the_key_is_and_never_the_key(tmp_path: Path) -> None:
    plan = compile_path(a_file(tmp_path, KEYED))
    environ = {"WATERSHED_SECRET_KEY": "new-one", "WATERSHED_SECRET_OLD": "old-one"}
    signing = read_signing_keys(plan, environ)
    assert signing == Signing((b"new-one", b"old-one"))
    assert "new-one" not in encode_plan(plan) + repr(signing)
    assert decode_plan(encode_plan(plan)) == plan
    with pytest.raises(SecretMissing, match=r"migration\.journal\.key: secret .* export WATERSHED_SECRET_KEY"):
        read_signing_keys(plan, {})
    with pytest.raises(SecretMissing, match=r"migration\.journal\.earlier_keys\[0\]"):
        read_signing_keys(plan, {"WATERSHED_SECRET_KEY": "new-one"})


def test_without_a_key_the_plan_is_as_it_was(tmp_path: Path) -> None:
    """A run that was begun with an earlier version keeps its plan."""
    plan = compile_path(a_file(tmp_path, ""))
    assert '"journal"' not in encode_plan(plan)
    assert decode_plan(encode_plan(plan)) == plan
    assert read_signing_keys(plan, {}) == UNSIGNED


@pytest.mark.kafka
def test_the_command_shows_signs_and_never_needs_the_key_to_show(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    bootstrap = kafka_pair.clusters["cloud"].bootstrap
    path = str(a_file(tmp_path, KEYED, topic_name, bootstrap))
    cloud = ConnectionSettings("cloud", tuple(bootstrap.split(",")))
    earlier = Journal(JournalTopicLog(cloud), topic_name, "me")
    earlier.append("r1", RUN_STEP, "outcome", {"state": "done"}, **WHO)
    root = earlier.chain.root
    monkeypatch.setenv("WATERSHED_SECRET_KEY", "new-one")
    monkeypatch.setenv("WATERSHED_SECRET_OLD", "old-one")
    assert main(["journal", path]) == 0
    assert f"topology journal FILE --sign {root}" in capsys.readouterr().out
    with pytest.raises(UnsignedHistory):
        open_journal(compile_path(path), cloud, "me").refresh()
    assert main(["journal", path, "--sign", root]) == 0
    assert "signed: 1 entries count, 0 lines do not" in capsys.readouterr().out
    with ControlWriter(cloud, "intruder") as writer:
        offset = writer.put(JOURNAL_TOPIC, "x", {"topology": topic_name, "run": "r9"}, 0)
    assert main(["journal", path]) == 0
    out = capsys.readouterr().out
    assert f"not counted: offset {offset} (run r9, step ): it is no entry of this version" in out
    assert "2 entries, chain whole" in out
    monkeypatch.delenv("WATERSHED_SECRET_KEY")
    assert main(["journal", path]) == 0
    assert "1 entries are signed; not verified here: no key." in capsys.readouterr().out
    assert main(["journal", path, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["void"], told["void_lines"][0]["offset"], told["signed"], told["verified"]) == (1, offset, 1, False)
    assert main(["migrate", path, "--status"]) == 2
    assert "migration.journal.key" in capsys.readouterr().err
