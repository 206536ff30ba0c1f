"""Strimzi's resources of `topology assets` on a real API server, by server-side apply, as their README says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError

from tests.cutover.real_kubernetes import build_client, running_server
from tests.topology.assets_for_kubernetes import ASSETS
from tests.topology.strimzi_schema import SPECS, build_crd
from topology.assets.strimzi_resources import write_strimzi_resources

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def _apply(dynamic: DynamicClient, body: dict[str, Any]) -> Any:
    deadline = time.monotonic() + 60
    while True:  # a definition is served a moment after it was accepted
        try:
            kind = dynamic.resources.get(api_version=body["apiVersion"], kind=body["kind"])
            return dynamic.server_side_apply(
                kind, body, namespace="shop", field_manager="kubectl", query_params=[("fieldValidation", "Strict")]
            )
        except (ResourceNotFoundError, NotFoundError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            dynamic.resources.invalidate_cache()


def test_the_api_server_takes_every_resource_as_it_is_written(tmp_path: Path) -> None:
    files = write_strimzi_resources(ASSETS, "shop").files
    with running_server(tmp_path) as server:
        api = build_client(server.build_kubeconfig({"token": server.admin}))
        client.CoreV1Api(api).create_namespace({"metadata": {"name": "shop"}})
        for kind in SPECS:
            client.ApiextensionsV1Api(api).create_custom_resource_definition(build_crd(kind))
        dynamic = DynamicClient(api)
        bodies = [each for text in files.values() for each in yaml.safe_load_all(text)]
        assert len(bodies) == 8 + 3
        for body in bodies:
            for _ in range(2):
                stored = _apply(dynamic, body).to_dict()
            assert stored["spec"] == body["spec"]
            assert stored["metadata"]["name"] == body["metadata"]["name"]
        bad = {**bodies[0], "spec": {**bodies[0]["spec"], "partitions": 0}}
        with pytest.raises(ApiException, match=r"spec\.partitions"):
            _apply(dynamic, bad)
