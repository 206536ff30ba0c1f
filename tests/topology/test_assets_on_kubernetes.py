"""Strimzi's resources of `topology assets` on a real API server, by server-side apply, as their README says. The server
reads the very text of the files."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.cutover.real_kubernetes import build_client, running_server
from tests.topology.assets_for_kubernetes import ASSETS
from tests.topology.strimzi_schema import SPECS, build_crd
from watershed.lab.kubernetes_server import KubernetesServer
from watershed.topology.assets.strimzi_resources import write_strimzi_resources

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def _apply(server: KubernetesServer, text: str) -> tuple[int, dict[str, Any]]:
    """Status and answer. A definition is served a moment after it was accepted: 404 until then."""
    body = yaml.safe_load(text)
    path = f"apis/{body['apiVersion']}/namespaces/shop/{body['kind'].lower()}s/{body['metadata']['name']}"
    asked = urllib.request.Request(
        f"{server.address}/{path}?fieldManager=kubectl&fieldValidation=Strict",
        data=text.encode("utf-8"),
        method="PATCH",
        headers={"Authorization": f"Bearer {server.admin}", "Content-Type": "application/apply-patch+yaml"},
    )
    trust, deadline = ssl.create_default_context(cadata=server.authority), time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=30, context=trust) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 503) or time.monotonic() > deadline:
                return error.code, json.load(error)
            time.sleep(0.2)


def test_the_api_server_takes_every_resource_as_it_is_written(tmp_path: Path) -> None:
    files = write_strimzi_resources(ASSETS, "shop").files
    with running_server(tmp_path) as server:
        api = build_client(server.build_kubeconfig({"token": server.admin}))
        client.CoreV1Api(api).create_namespace({"metadata": {"name": "shop"}})
        for kind in SPECS:
            client.ApiextensionsV1Api(api).create_custom_resource_definition(build_crd(kind))
        texts = [each for text in files.values() for each in text.split("---\n")[1:]]
        assert len(texts) == 8 + 3
        for text in texts:
            body = yaml.safe_load(text)
            for wanted in (201, 200):
                status, stored = _apply(server, text)
                assert status == wanted, stored
            assert stored["spec"] == body["spec"]
            assert stored["metadata"]["name"] == body["metadata"]["name"]
        for wrong, told in (
            ("partitions: 0", "spec.partitions"),
            ("partition: 3", "spec.partition: field not declared"),
        ):
            status, refused = _apply(server, texts[0].replace("partitions: 3", wrong))
            assert status in (400, 422, 500), refused
            assert told in refused["message"]
