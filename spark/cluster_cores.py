"""Who holds the cores of a standalone cluster, and how many a fleet or a proof may take (docs/decisions/0094).

A standalone master gives cores to whoever asked first, and a fleet never gives its own back. So fleets leave one core
of the cluster to proofs, and a proof leaves one to a fleet that starts or heals. What is known of the cluster is what
the master's web page says in JSON. Without that page nothing is limited, and people are told less. No other kind of
master is asked.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import environ as process_environment
from typing import Any, Final
from urllib.parse import urlsplit

from watershed.spark.errors import WrongUse
from watershed.topology.bounded_json import parse_json_object
from watershed.topology.text_escaping import escape_controls

FLEET_NAME: Final = "watershed-replicate"  # Spark applications are called so, and further words behind it
PROOF_NAME: Final = "watershed-verify"
LEFT_SETTING: Final = "spark.watershed.cores.left"
WAITING_PREFIX: Final = "waiting for Spark: "
BEGUN_PREFIX: Final = "Spark has begun: "
_PAGE_PORT: Final = 8080  # Spark's own default of spark.master.ui.port
_PAGE_S: Final = 2.0
_LARGEST: Final = 4 << 20  # bytes of the page
_NAMED: Final = 5  # applications that a message names
_NAME: Final = 80  # characters of such a name: whoever may use the cluster chooses it
_LEAST_MEMORY_MB: Final = 450  # what an executor must have by its own count (Spark's UnifiedMemoryManager)
_EVERY_S: Final = 2.0  # between two looks at the page


@dataclass(frozen=True, slots=True)
class ClusterApplication:
    """A Spark application that runs or waits at a master. started_ms: when it came, milliseconds since 1970.
    memory_mb: of each of its executors."""

    id: str
    name: str
    cores: int
    started_ms: int
    memory_mb: int

    @property
    def is_fleet(self) -> bool:
        """Whether it hosts workers of ours, which do not end by themselves."""
        return self.name.startswith(FLEET_NAME)

    @property
    def is_proof(self) -> bool:
        """Whether it is a proof of ours."""
        return self.name.startswith(PROOF_NAME)


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """A machine of the cluster as its master counts it. memory_free: MiB."""

    cores: int
    cores_free: int
    memory_free: int


@dataclass(frozen=True, slots=True)
class ClusterCores:
    """What a master has given to whom. workers: those that are alive. page: the address that said it, where one did."""

    master: str
    workers: tuple[ClusterWorker, ...]
    applications: tuple[ClusterApplication, ...]
    page: str = ""

    @property
    def total(self) -> int:
        """Cores of all workers."""
        return sum(each.cores for each in self.workers)

    @property
    def free(self) -> int:
        """Cores that nobody has."""
        return sum(each.cores_free for each in self.workers)

    def find(self, app_id: str) -> ClusterApplication | None:
        """The application with this id."""
        return next((each for each in self.applications if each.id == app_id), None)


def parse_master_state(payload: bytes) -> ClusterCores | None:
    """What `http://MASTER:8080/json/` answered; None where it is not a master's answer, or that of a standby master.

    The fields are those of `org.apache.spark.deploy.JsonProtocol` (Spark 4.3).
    """
    try:
        told = parse_json_object(payload, largest=_LARGEST)
        if told["status"] != "ALIVE":
            return None
        workers = [each for each in told["workers"] if each["state"] == "ALIVE"]
        return ClusterCores(
            str(told["url"]),
            tuple(ClusterWorker(int(w["cores"]), int(w["coresfree"]), int(w["memoryfree"])) for w in workers),
            tuple(_parse_application(each) for each in told["activeapps"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _parse_application(told: Mapping[str, Any]) -> ClusterApplication:
    cores = int(told["cores"])  # TypeError for what is no object
    memory = int(told.get("memoryperexecutor", told.get("memoryperslave", 0)))
    return ClusterApplication(str(told["id"]), str(told["name"]), cores, int(told["starttime"]), memory)


def compute_fleet_limit(cores: ClusterCores, app_id: str = "", left: int = 1) -> int:
    """How many cores the fleet with this application may hold: all but `left`, and but those of other fleets.

    A fleet that came earlier, and has no core yet, counts with one. So of two that start at once only one takes the
    last core that fleets may have. app_id: "" before the application is known to the master.
    """
    own = cores.find(app_id)
    rank = (own.started_ms, own.id) if own is not None else None
    others = 0
    for each in cores.applications:
        if not each.is_fleet or each.id == app_id:
            continue
        came_first = rank is None or (each.started_ms, each.id) < rank
        others += max(each.cores, 1) if came_first else each.cores
    return max(cores.total - left - others, 0)


def compute_fixed_size(cores: ClusterCores, workers: int, left: int | None) -> int:
    """How many of these workers a fleet that a person starts by hand can have; 0 where fleets may have no core.

    left: what is configured to be left to proofs, None for the default. By default a cluster of one core is the fleet's
    that comes first: whoever starts it by hand has asked for that.
    """
    if left is None and cores.total == 1:
        left = 0
    return min(workers, compute_fleet_limit(cores, left=1 if left is None else left))


def compute_fleet_share(cores: ClusterCores, app_id: str, left: int = 1) -> int:
    """How many cores the fleet with this application may keep: it gives those beyond back.

    Less strict than what it may take. Fleets that came later give back first, so they count with the one core that a
    fleet never gives back. Were they counted with all, two fleets would give cores to each other for ever.
    """
    own = cores.find(app_id)
    if own is None:
        return max(cores.total - left, 0)
    others = 0
    for each in cores.applications:
        if each.is_fleet and each.id != app_id:
            came_first = (each.started_ms, each.id) < (own.started_ms, own.id)
            others += each.cores if came_first else min(each.cores, 1)
    return max(cores.total - left - others, 0)


def compute_proof_limit(cores: ClusterCores) -> int:
    """How many cores a proof takes at most: all that no fleet holds but one, and at least one.

    The one is for a fleet that starts, or heals, while a proof waits for its next order.
    """
    return max(cores.total - sum(each.cores for each in cores.applications if each.is_fleet) - 1, 1)


def describe_core_wait(cores: ClusterCores, app_id: str = "", memory_mb: int = 0) -> str:
    """One paragraph: what is free, who holds the rest, what to do. memory_mb: of an executor, 0 where not known."""
    own = cores.find(app_id)
    memory = own.memory_mb if own is not None else memory_mb
    at = f"at {cores.master}"
    if not cores.workers:
        return f"{WAITING_PREFIX}no worker has registered {at}. What to do: start one (docs/engines.md, Standalone)"
    if cores.free:
        return (
            f"{WAITING_PREFIX}{_count(cores.free)} of {cores.total} free {at}, but no worker with a free core has "
            f"{memory:,} MiB of memory left. What to do: give workers more memory (`--memory`; SPARK_MEMORY in "
            f"docker-compose.yaml), or set a smaller spark.executor.memory in the file of WATERSHED_SPARK_CONF"
        )
    held = sorted((each for each in cores.applications if each.cores and each.id != app_id), key=lambda e: -e.cores)
    named = ", ".join(f"{escape_controls(each.name[:_NAME])} holds {each.cores}" for each in held[:_NAMED])
    more = f", {len(held) - _NAMED} more hold the rest" if len(held) > _NAMED else ""
    return (
        f"{WAITING_PREFIX}0 of {_count(cores.total)} free {at}: {named}{more}. It begins as soon as one is free. "
        f"What to do: {'; or '.join(_list_remedies(cores, held))}"
    )


def describe_executor_start(cores: ClusterCores, app_id: str) -> str:
    """What an application waits for that has cores and runs nothing: its executors start, or end at once.

    A master starts an executor that ends again and again, for ever, and tells the application nothing. Its page does.
    """
    listed = f"{cores.page}/app/?appId={app_id}" if cores.page else "the master's web page"
    return (
        f"The application has its cores; Java or Python of its executors has not started yet, or ends again at once. "
        f"What to do: if {listed} lists executors that EXITED, read the stderr of one there. The usual cause is "
        f"spark.executor.memory: Java counts less than it was given, and Spark wants {_LEAST_MEMORY_MB} MiB"
    )


def has_room(cores: ClusterCores, memory_mb: int) -> bool:
    """Whether an executor with one core and so much memory (MiB) finds room at once."""
    return any(each.cores_free and each.memory_free >= memory_mb for each in cores.workers)


def describe_fleet_room(cores: ClusterCores, waiting: int, near: int, left: int) -> str:
    """What keeps a fleet's workers from cores, for its record and its log; "" where nothing does.

    waiting: workers that do not run. near: workers that run beside the driver instead.
    """
    if not waiting and not near:
        return ""
    waits = "1 worker waits for a core" if waiting == 1 else f"{waiting} workers wait for cores" if waiting else ""
    beside = "1 worker runs beside the Spark driver" if near == 1 else f"{near} run beside the driver" if near else ""
    then = ", then `topology fleet restart`" if near else "; or scale the fleet down"
    return (
        f"{' and '.join(filter(None, (beside, waits)))}: {_describe_fleets(cores, left)}. "
        f"What to do: {_more_cores(cores.total + waiting + near)}{then}"
    )


def describe_fixed_size(cores: ClusterCores, workers: int, size: int, left: int | None) -> str:
    """Why a fleet that a person starts by hand has fewer workers than asked for. left: as `compute_fixed_size`."""
    return (
        f"{size} of {workers} workers can begin: {_describe_fleets(cores, 1 if left is None else left)}. What to do: "
        f"{_more_cores(cores.total + workers - size)}, or set a smaller {LEFT_SETTING} in the file of "
        f"WATERSHED_SPARK_CONF, and start it again"
    )


def _describe_fleets(cores: ClusterCores, left: int) -> str:
    fleets = sum(each.cores for each in cores.applications if each.is_fleet)
    others = sum(each.cores for each in cores.applications if not each.is_fleet)
    held = f"fleets hold {fleets} of {_count(cores.total)}" + (f" (others: {others})" if others else "")
    return f"{held}, and leave {left} to proofs ({LEFT_SETTING})"


def _list_remedies(cores: ClusterCores, held: list[ClusterApplication]) -> list[str]:
    found = [_more_cores(cores.total + 1)]
    if any(each.is_fleet and each.cores > 1 for each in held):
        found.append("make a fleet smaller (`topology fleet scale`)")
    if any(each.is_proof for each in held):
        found.append("wait until the other proof, or the migration that it belongs to, has ended")
    if any(not each.is_fleet and not each.is_proof for each in held):
        found.append("limit the other applications (their spark.cores.max)")
    return found


def _more_cores(wanted: int) -> str:
    return f"give the cluster {wanted} cores (`--cores` of its workers; SPARK_CORES in docker-compose.yaml)"


def _count(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def list_master_addresses(master: str) -> list[tuple[str, int]]:
    """Hosts and ports of `spark://a:7077,b:7077` or `k8s://https://host:443`; none for others (`yarn`).

    Raises WrongUse.
    """
    if master.startswith("k8s://"):
        rest = master.removeprefix("k8s://")
        url = urlsplit(rest if "://" in rest else f"https://{rest}")
        return [(url.hostname, url.port or (80 if url.scheme == "http" else 443))] if url.hostname else []
    if not master.startswith("spark://"):
        return []
    found = []
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        if not host or not port.isdigit():
            raise WrongUse(f"WATERSHED_SPARK_MASTER={master}: expected spark://HOST:PORT[,HOST:PORT]")
        found.append((host.strip("[]"), int(port)))
    return found


def read_cluster_cores(master: str, environ: Mapping[str, str] = process_environment) -> ClusterCores | None:
    """What the master's page says; None for other masters than a standalone one, and where no page answers.

    WATERSHED_SPARK_PAGE is its address, by default port 8080 of each host of the master's. Raises WrongUse.
    """
    if not master.startswith("spark://"):
        return None
    addresses = list_master_addresses(master)
    own = environ.get("WATERSHED_SPARK_PAGE", "").strip()
    pages = [own] if own else [f"http://{f'[{host}]' if ':' in host else host}:{_PAGE_PORT}" for host, _ in addresses]
    ports = {port for _, port in addresses}
    for page in pages:
        found = parse_master_state(_fetch(page))
        # Port 8080 is in wide use: what answers there has to be the master that was meant.
        if found is not None and (own or urlsplit(found.master).port in ports):
            return replace(found, page=page.rstrip("/"))
    return None


def _fetch(page: str) -> bytes:
    """The page as JSON; nothing where it does not answer. Raises WrongUse for what is no address."""
    wrong = f"WATERSHED_SPARK_PAGE={page}: expected http://HOST:PORT, the address of the master's web page"
    try:
        url = urlsplit(page)
        host, port = url.hostname, url.port
    except ValueError:
        raise WrongUse(wrong) from None
    if url.scheme not in ("http", "https") or not host:
        raise WrongUse(wrong)
    make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = make(host, port, timeout=_PAGE_S)
    with suppress(OSError, http.client.HTTPException):
        try:
            connection.request("GET", f"{url.path.rstrip('/')}/json/")
            answer = connection.getresponse()
            return answer.read(_LARGEST + 1) if answer.status == http.client.OK else b""
        finally:
            connection.close()
    return b""


@dataclass(slots=True)
class FleetCoreLimit:
    """How many cores one fleet may hold now; asked of the master every few seconds. left: what fleets leave to proofs.

    `read` gives what the master says, None where that is not known: then the last answer counts, and without one there
    is no limit.
    """

    read: Callable[[], ClusterCores | None]
    app_id: str
    left: int = 1
    every_s: float = _EVERY_S
    known: ClusterCores | None = field(init=False, default=None)
    _due: float = field(init=False, default=0.0)

    def find(self) -> int | None:
        """Cores; None for no limit."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self.every_s
            self.known = self.read() or self.known
        return None if self.known is None else compute_fleet_limit(self.known, self.app_id, self.left)

    @property
    def share(self) -> int | None:
        """Cores that it may keep, from the last answer; None for no limit."""
        return None if self.known is None else compute_fleet_share(self.known, self.app_id, self.left)

    @property
    def is_starved(self) -> bool:
        """Whether it has no core and the cluster no room for an executor: others than fleets have what is left."""
        own = None if self.known is None else self.known.find(self.app_id)
        return self.known is not None and own is not None and own.cores == 0 and not has_room(self.known, own.memory_mb)
