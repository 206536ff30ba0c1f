"""The API server of Kubernetes: how it is reached, and what this host lets a migration do there.

`WATERSHED_KUBERNETES_NAMESPACES` lists the namespaces whose workloads a topology file may name. Without it none may be
named: the file's author would otherwise scale whatever the credentials of this host can.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from watershed.clusters.errors import SecretMissing
from watershed.clusters.secrets import SecretResolver
from watershed.cutover.live.applications.application_adapter import ApplicationControlFailed
from watershed.topology.application_controls import KubernetesControl

NAMESPACES_VARIABLE = "WATERSHED_KUBERNETES_NAMESPACES"


def require_namespace(name: str, control: KubernetesControl, environ: Mapping[str, str]) -> None:
    """Raises ApplicationControlFailed for a namespace that this host does not list."""
    listed = [each.strip() for each in environ.get(NAMESPACES_VARIABLE, "").split(",") if each.strip()]
    if control.namespace not in listed:
        raise ApplicationControlFailed(
            f"application {name}: namespace {control.namespace} may not be touched from here: whoever runs the "
            f"migration lets it with {NAMESPACES_VARIABLE}={','.join([*listed, control.namespace])}",
            transient=False,
        )


def build_kubernetes_client(name: str, control: KubernetesControl, environ: Mapping[str, str]) -> Any:
    """A client of the official library (`kubernetes.client.ApiClient`). Raises ApplicationControlFailed."""
    try:
        import kubernetes
        from kubernetes.config.config_exception import ConfigException
    except ImportError:
        raise ApplicationControlFailed(
            f"application {name} runs in Kubernetes, and the client library is missing where the migration runs: "
            'pip install "watershed[kubernetes]"',
            transient=False,
        ) from None
    configuration = kubernetes.client.Configuration()
    configuration.retries = False  # whoever asks, asks again
    where = f"migration.applications.{name}.kubernetes"
    try:
        _configure(kubernetes.config, configuration, control, SecretResolver("", environ, where=where))
    except SecretMissing as error:
        raise ApplicationControlFailed(f"application {name}: {error}", transient=False) from None
    except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        # Its text may quote the kubeconfig.
        why = "there is no service account here" if control.credentials is None else type(error).__name__
        raise ApplicationControlFailed(
            f"application {name}: the credentials of Kubernetes cannot be used ({why}); correct {where}.credentials: a "
            "kubeconfig, or Airflow's Kubernetes connection",
            transient=False,
        ) from None
    return kubernetes.client.ApiClient(configuration)


def _configure(config: Any, configuration: Any, control: KubernetesControl, vault: SecretResolver) -> None:
    ref = control.credentials
    if ref is None:
        config.load_incluster_config(client_configuration=configuration)
    elif ref.kind == "file":
        path = vault.path("credentials", ref)
        config.load_kube_config(path, context=control.context, client_configuration=configuration)
    elif ref.kind == "env":
        _load_text(config, configuration, vault.text("credentials", ref), control.context)
    else:
        _configure_by_connection(config, configuration, parse_connection_extra(vault.text("credentials", ref)))


def _configure_by_connection(config: Any, configuration: Any, extra: Mapping[str, Any]) -> None:
    """As Airflow's Kubernetes hook reads its connection: in the cluster, a kubeconfig as text, or a path to one."""
    context = extra.get("cluster_context") or None
    if str(extra.get("in_cluster", "")).lower() == "true":
        config.load_incluster_config(client_configuration=configuration)
    elif extra.get("kube_config"):
        _load_text(config, configuration, extra["kube_config"], context)
    else:
        config.load_kube_config(extra.get("kube_config_path"), context=context, client_configuration=configuration)


def _load_text(config: Any, configuration: Any, text: object, context: str | None) -> None:
    value = yaml.safe_load(text) if isinstance(text, str) else text
    config.load_kube_config_from_dict(value, context=context, client_configuration=configuration)


def parse_connection_extra(text: str) -> dict[str, Any]:
    """The fields of a connection, as JSON or as an address with a query; names without their old prefix. Raises
    ValueError."""
    if text.lstrip().startswith("{"):
        extra = json.loads(text).get("extra") or {}
        extra = json.loads(extra) if isinstance(extra, str) else extra
    else:
        query = {name: unquote(values[-1]) for name, values in parse_qs(urlsplit(text).query).items()}
        extra = json.loads(query["__extra__"]) if "__extra__" in query else query
    return {str(name).removeprefix("extra__kubernetes__"): value for name, value in dict(extra).items()}
