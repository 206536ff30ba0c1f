"""Starting the services of a compose file in the order of their dependencies.

Docker's compose does this itself. Podman before 4.6 ignores `service_healthy`, and without systemd nobody runs its
health checks: so what is started together, and when it is ready, is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx

from watershed.lab.containers.container_engine import ComposeProject, ContainerEngine, EngineFailed

_PAUSE_S = 1.0
_READY_S = 600.0
_END = "service_completed_successfully"
_CHECKS_AT_ONCE_S = 15.0


def plan_start_stages(services: Mapping[str, Any]) -> list[list[str]]:
    """All services but `demo`, in stages: each depends on services of earlier stages only."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, service in services.items():
        if name != "demo":  # it is run when all others are ready
            graph.add_node(name)
            graph.add_edges_from((other, name) for other in service.get("depends_on", {}))
    return [sorted(stage) for stage in nx.topological_generations(graph)]


def list_one_shot_services(services: Mapping[str, Any]) -> frozenset[str]:
    """Those that others wait for to end."""
    waited = (service.get("depends_on", {}) for service in services.values())
    return frozenset(name for each in waited for name, how in each.items() if how["condition"] == _END)


def start_services(project: ComposeProject, services: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Starts all services and waits until each is healthy, or has ended if it is one that ends. Raises EngineFailed."""
    ending = list_one_shot_services(services)
    for stage in plan_start_stages(services):
        began = time.monotonic()
        project.run("up", "--detach", "--no-build", "--no-deps", *stage)
        wait_until_ready(project, stage, services, ending)
        say(f"{', '.join(stage)}: ready after {time.monotonic() - began:.0f} s")


def wait_until_ready(
    project: ComposeProject, names: list[str], services: Mapping[str, Any], ending: frozenset[str]
) -> None:
    """Waits until each of these services is healthy, or has ended well. Raises EngineFailed with its log."""
    deadline = time.monotonic() + _READY_S
    left = list(names)
    while left := [name for name in left if not _is_ready(project, name, services[name], ends=name in ending)]:
        if time.monotonic() > deadline:
            raise EngineFailed(f"not ready after {_READY_S:.0f} s: {_describe(project, left)}")
        time.sleep(_PAUSE_S)


def _is_ready(project: ComposeProject, name: str, service: Mapping[str, Any], *, ends: bool) -> bool:
    """Raises EngineFailed for a service that has ended and should not have, or has failed."""
    identity = project.find_container(name)
    known = project.engine.inspect(identity) if identity else None
    if identity is None or known is None:
        return False
    state = known["State"]
    if state["Status"] == "exited" and (ends or service.get("restart", "no") == "no"):
        if state["ExitCode"] == 0 and ends:
            return True
        raise EngineFailed(f"{_describe(project, [name])} (exit {state['ExitCode']})")
    if ends or state["Status"] != "running":
        return False
    return "healthcheck" not in service or _is_healthy(project.engine, identity, state)


def _is_healthy(engine: ContainerEngine, identity: str, state: Mapping[str, Any]) -> bool:
    if engine.checks_health:
        return bool((state.get("Health") or state.get("Healthcheck") or {}).get("Status") == "healthy")
    return engine.try_run("healthcheck", "run", identity, timeout=_CHECKS_AT_ONCE_S + 15).returncode == 0


def _describe(project: ComposeProject, names: list[str]) -> str:
    """The services, each with the end of its log."""
    told = []
    for name in names:
        identity = project.find_container(name)
        done = project.engine.try_run("logs", "--tail", "12", identity) if identity else None
        told.append(f"{name}\n{(done.stdout + done.stderr).strip() if done else '(no container)'}")
    return "\n".join(told)
