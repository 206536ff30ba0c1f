"""The steps of a failover behind the promotion: applications get their rights, and start at the target."""

from __future__ import annotations

from dataclasses import replace

from clusters.names import TopicPartition
from cutover.actions import (
    Json,
    LookAtRecords,
    LookAtRights,
    Role,
    Say,
    Seal,
    StopApplication,
)
from cutover.errors import Refused
from cutover.failover.losing import named
from cutover.ground import Ground, target_logs
from cutover.observations import (
    ApplicationSeen,
    RecordsSeen,
    RightsSeen,
    Sealed,
)
from cutover.offsets import growth
from cutover.rights import give
from cutover.waiting import Asking, Check, ask, wait


def give_rights(ground: Ground, note: Json) -> Asking[None]:
    seen = yield from ask(LookAtRights(remembered=True), RightsSeen, ground.policy)
    note.update(asked=seen.asked, known_ms=seen.known_ms)
    if not seen.asked:
        note["told"] = f"flow {ground.flow.id} holds no rights back (sync.acls.include_write)"
        yield Say(note["told"])
        return
    if seen.known_ms is None:
        raise Refused(
            f"flow {ground.flow.id} holds rights to write back until a failover, and nothing is written down of them: "
            "its workers never read them from the source. Give the applications their rights by hand, set "
            "`sync.acls.include_write: never` in the file if that is done, and repeat",
            note,
        )
    yield from give(ground, note, seen)


def stop_at_source(ground: Ground, note: Json) -> Asking[None]:
    """Applications let go of the dead source. One that does not answer may have gone with it: that is noted, and nobody
    waits for it."""
    policy = replace(ground.policy, reach_ms=0)
    note["stopped"], note["silent"] = {}, {}
    roles: list[tuple[str, Role]] = [(name, "producer") for name in ground.producers]
    roles += [(name, "consumer") for name in ground.groups]
    for name, role in roles:
        try:
            seen = yield from ask(StopApplication(name, role), ApplicationSeen, policy)
        except Refused as why:
            note["silent"][name] = str(why)
            yield Say(f"{role} {name} could not be told to stop, and may have gone with {ground.flow.source}: {why}")
            continue
        if seen.state == "running":
            raise Refused(f"{role} {name} was told to stop and still runs at {seen.cluster}")
        note["stopped"][name] = seen.by


def canary_there(ground: Ground, note: Json) -> Asking[None]:
    """The first writes on the promoted side are there to be read (redpanda#31659)."""
    policy, before = ground.policy, ground.offsets("cut_workers_off", "target_ends")
    if not ground.producers:
        return
    grown: dict[TopicPartition, int] = {}

    def look() -> Asking[Check]:
        now = yield from target_logs(ground)
        grown.clear()
        grown.update({place: count for place, count in growth(before, now.stable).items() if count > 0})
        text = f"{sum(grown.values())} offsets written on {len(grown)} partitions of {ground.flow.target}"
        return Check(bool(grown), text, now.at_ms, {"first_writes": {str(p): n for p, n in grown.items()}})

    note.update((yield from wait(look, policy.canary_bound_ms, policy)).seen)
    read = (yield from ask(LookAtRecords("target", {p: before[p] for p in grown}), RecordsSeen, policy)).records
    unread = [str(place) for place, record in read.items() if record is None]
    if unread:
        raise Refused(f"first writes on {', '.join(unread)} are in the log but cannot be read back", note)
    note["read_back"] = sorted(str(place) for place in read)


def seal_failover(ground: Ground, note: Json) -> Asking[None]:
    seen = yield from ask(Seal(), Sealed, ground.policy)
    note.update(evidence=seen.path, root=seen.root, primary=ground.flow.target)
    yield Say(
        f"{ground.flow.target} is primary for {named(ground)}. When {ground.flow.source} is back: "
        "`topology failback`; until then nothing may write there"
    )
