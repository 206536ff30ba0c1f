"""The clusters of a fleet as a running worker reaches them: by the plan it was started with, and by the plan that was
applied last, which stands in the fleet's record (`clusters.fleet.FleetRecord.clusters`).

A worker's own file is not always the older one: a worker in a container may reach a cluster by another address than
whoever applies the plan. So an applied cluster counts where the worker's plan does not have it, where the worker's plan
is one that was applied before, and where `topology apply` has changed it since the worker started.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from watershed.clusters.allowed_references import explain_broker_refusal
from watershed.clusters.errors import ClusterError, SecretMissing
from watershed.clusters.fleet import FleetRecord
from watershed.clusters.settings import ConnectionSettings, SettingsLookup, resolve_connection_settings
from watershed.topology.plan import PlanCluster

log = logging.getLogger("watershed.worker")

_TLS_PROTOCOLS: Final = ("SASL_SSL", "SSL")
_LOGIN_PROTOCOLS: Final = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")


@dataclass(slots=True)
class AppliedClusters:
    """`connect` is the settings lookup for the rest of the worker; it may be called by any thread.

    own: settings by the worker's own plan; it raises KeyError for an alias that the plan does not have. plan_hash: of
    that plan, "" where it is not known.
    """

    own: SettingsLookup
    plan_hash: str = ""
    _first: Mapping[str, PlanCluster] | None = None  # as the record had them when the worker first read it
    _applied: Mapping[str, PlanCluster] = field(default_factory=dict)  # those that count instead of our own
    _refused: dict[str, str] = field(default_factory=dict)  # alias → why the applied one does not count

    def follow(self, record: FleetRecord | None) -> set[str]:
        """Take over what was applied; the aliases of clusters that are reached otherwise from now on.

        A cluster that the worker may not log in at is told once, and changes nothing.
        """
        if record is None or not record.clusters:
            return set()
        if self._first is None:
            self._first = record.clusters
        found: dict[str, PlanCluster] = {}
        refused: dict[str, str] = {}
        for alias, cluster in record.clusters.items():
            if not self._counts(record, alias, cluster):
                continue
            own = self._find_own(alias)
            why = explain_lost_protection(own, cluster) or explain_broker_refusal(
                list_login_hosts(cluster), _list_known_hosts(own, cluster)
            )
            if why is None:
                found[alias] = cluster
            else:
                refused[alias] = why
        self._tell_refused(refused)
        changed = {alias for alias in {*found, *self._applied} if found.get(alias) != self._applied.get(alias)}
        self._applied, self._refused = found, refused
        return changed

    def connect(self, alias: str) -> ConnectionSettings:
        """Raises ClusterError, also for a cluster that neither plan has."""
        cluster = self._applied.get(alias)
        if cluster is not None:
            return resolve_connection_settings(cluster)
        try:
            return self.own(alias)
        except KeyError:
            why = self._refused.get(alias)
            if why is not None:
                raise SecretMissing(why, alias=alias) from None
            raise ClusterError(
                f"cluster {alias} is in no plan that this worker knows; run `topology apply` with the file that has it",
                alias=alias,
            ) from None

    def _counts(self, record: FleetRecord, alias: str, cluster: PlanCluster) -> bool:
        try:
            origin = self.own(alias).origin
        except KeyError:
            return True
        except ClusterError:  # it has the cluster, but not its secret
            origin = None
        if origin is not None and origin.cluster == cluster:
            return False
        changed = self._first is not None and self._first.get(alias) != cluster
        return changed or self.plan_hash in record.superseded

    def _find_own(self, alias: str) -> PlanCluster | None:
        """The cluster as the worker's own plan has it; None without one, and where its secret is missing."""
        try:
            origin = self.own(alias).origin
        except (KeyError, ClusterError):
            return None
        return None if origin is None else origin.cluster

    def _tell_refused(self, refused: Mapping[str, str]) -> None:
        for alias, why in refused.items():
            if self._refused.get(alias) != why:
                log.warning("applied cluster refused", extra={"cluster": alias, "reason": why})


def explain_lost_protection(own: PlanCluster | None, applied: PlanCluster) -> str | None:
    """Why a cluster of a control topic does not count instead of the worker's own of that alias: whoever wrote it would
    otherwise have records read from, or written to, a cluster that nobody has vouched for. None where it may."""
    if own is None:
        return None
    lost = []
    if own.security.protocol in _TLS_PROTOCOLS and applied.security.protocol not in _TLS_PROTOCOLS:
        lost.append(f"{applied.security.protocol} instead of {own.security.protocol}")
    elif own.security.ca is not None and applied.security.ca is None:
        lost.append("no CA of its own any more")
    if own.cluster_id is not None and applied.cluster_id != own.cluster_id:
        lost.append(f"cluster id {applied.cluster_id or 'unknown'} instead of {own.cluster_id}")
    if not lost:
        return None
    return f"the applied plan protects {own.alias} less: {', '.join(lost)}. Start the worker again with the new file"


def _list_known_hosts(own: PlanCluster | None, applied: PlanCluster) -> list[str]:
    """The hosts at which the worker's own plan has it log in with the same secrets."""
    return [] if own is None or own.security != applied.security else list_login_hosts(own)


def list_login_hosts(cluster: PlanCluster) -> list[str]:
    """The hosts that get to see credentials of ours: brokers, the registry, and the endpoint of tokens."""
    hosts: list[str] = []
    security, registry = cluster.security, cluster.registry
    if security.protocol in _LOGIN_PROTOCOLS and (security.protocol != "SSL" or _has_account(cluster)):
        hosts += cluster.bootstrap
    if security.oauth is not None and security.oauth.token_endpoint is not None:
        hosts += _hosts_of([security.oauth.token_endpoint])
    if registry is not None and (registry.credentials is not None or registry.certificate is not None):
        hosts += _hosts_of([registry.url])
    return hosts


def _has_account(cluster: PlanCluster) -> bool:
    return cluster.security.credentials is not None or cluster.security.certificate is not None


def _hosts_of(addresses: Iterable[str]) -> list[str]:
    return [_host_of(each) for each in addresses]


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:  # whoever wrote it: no host of ours is called like that
        return address
