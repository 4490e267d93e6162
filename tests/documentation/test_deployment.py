"""The container image, the compose file and the Kubernetes manifests fit together, and fit the server."""

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyOptions
from setuptools import find_packages
from typer.main import get_command

from mistify.parsing.quantities import parse_bytes
from mistify.tokens import read_token
from mistify_server.cli import app
from mistify_server.config import ServeConfig, load_config
from mistify_server.listening import DEFAULT_HTTP, DEFAULT_LISTEN
from mistify_server.web.access import OPEN_PATHS
from tests.support.paths import REPOSITORY

DEPLOY = REPOSITORY / "docs" / "deploy"
KUBERNETES = kubernetes_validate.latest_version()
KUBERAY = "RayCluster"

MANIFESTS = [
    document
    for file in sorted((DEPLOY / "kubernetes").iterdir())
    for document in yaml.safe_load_all(file.read_text())
]
IMAGE = (DEPLOY / "Containerfile").read_text()
COMPOSE = (DEPLOY / "compose.yaml").read_text()

#: Examples of the variables that the compose file needs.
VARIABLES = {"MISTIFY_ARTIFACTS": "s3://models/mistify"}


def manifest(kind: str, name: str) -> Any:
    (chosen,) = (each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return chosen


def pods(document: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the pod templates in a manifest."""
    spec = document.get("spec", {})
    for group in (spec, spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", ())):
        if "template" in group:
            yield group["template"]


def mistake_in(document: Mapping[str, Any]) -> str:
    """Return the first mistake that the schemas of Kubernetes find; in a RayCluster, only in its pods."""
    own = document["kind"] == KUBERAY
    parts = (
        [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods(document)] if own else [dict(document)]
    )
    try:
        for part in parts:
            kubernetes_validate.validate(part, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


def serve_settings(arguments: Sequence[str], variables: Mapping[str, str]) -> ServeConfig:
    """Return the settings that `mistify-server serve` reads from a command line."""
    expanded = [re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], word) for word in arguments]
    assert expanded[0] == "serve"
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    flags = command.make_context("serve", expanded[1:]).params
    return load_config(flags.pop("config"), flags)


def variables_of(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a container that our own manifests define."""
    secrets = [
        manifest("Secret", source["secretRef"]["name"])["stringData"] for source in container["envFrom"]
    ]
    return {key: value for secret in secrets for key, value in secret.items()}


SERVER = manifest("StatefulSet", "mistify")["spec"]["template"]["spec"]
CONTAINER = SERVER["containers"][0]
RAY = manifest(KUBERAY, "mistify-ray")


@pytest.fixture(scope="module")
def settings() -> ServeConfig:
    return serve_settings(CONTAINER["args"], variables_of(CONTAINER))


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_is_valid(document: dict[str, Any]) -> None:
    assert not mistake_in(document)


@pytest.mark.parametrize("kind", ["StatefulSet", KUBERAY])
def test_a_mistake_in_a_pod_is_found(kind: str) -> None:
    document = copy.deepcopy(next(each for each in MANIFESTS if each["kind"] == kind))
    next(pods(document))["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert "imagePullPolice" in mistake_in(document)


def test_the_server_listens_where_its_service_and_its_probes_expect_it(settings: ServeConfig) -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert settings.listen == f"0.0.0.0:{ports['grpc']}"
    assert settings.http == f"0.0.0.0:{ports['https']}"
    assert [f"127.0.0.1:{port}" for port in ports.values()] == [DEFAULT_LISTEN, DEFAULT_HTTP]
    service = manifest("Service", "mistify")["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    labels = manifest("StatefulSet", "mistify")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    for kind, path in (("startup", "/healthz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        probe = CONTAINER[f"{kind}Probe"]["httpGet"]
        assert probe == {"path": path, "port": "https", "scheme": "HTTPS"}
        assert path in OPEN_PATHS
    assert settings.tls_certificate is not None


def test_the_server_starts_no_second_one_and_reads_its_secrets(settings: ServeConfig, tmp_path: Path) -> None:
    assert manifest("StatefulSet", "mistify")["spec"]["replicas"] == 1
    mounts = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    secrets = {volume["name"]: volume["secret"] for volume in SERVER["volumes"]}
    token = secrets[mounts[str(settings.token_file.parent)]]  # type: ignore[union-attr]
    assert settings.token_file.name in manifest("Secret", token["secretName"])["stringData"]  # type: ignore[union-attr]
    copied = tmp_path / "token"
    copied.write_text("secret")
    copied.chmod(token["defaultMode"])
    assert read_token(copied) == "secret"
    assert settings.tls_certificate.parent == settings.tls_key.parent  # type: ignore[union-attr]
    assert mounts[str(settings.tls_key.parent)] == "tls"  # type: ignore[union-attr]
    assert not any("PASSWORD" in word or "KEY" in word for word in CONTAINER["args"])


def test_the_disks_have_room_for_what_they_hold(settings: ServeConfig) -> None:
    cache, uploads = (parse_bytes(text).value for text in (settings.artifacts_cache, settings.max_uploads))
    (claim,) = manifest("StatefulSet", "mistify")["spec"]["volumeClaimTemplates"]
    assert in_bytes(claim["spec"]["resources"]["requests"]["storage"]) > cache + uploads
    for pod in pods(RAY):
        (volume,) = pod["spec"]["volumes"]
        assert in_bytes(volume["emptyDir"]["sizeLimit"]) > 1.5 * cache


def in_bytes(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Gi|Mi)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * {"Gi": 2**30, "Mi": 2**20}[unit]


def test_the_nodes_of_the_cluster_fit_the_server(settings: ServeConfig) -> None:
    name = RAY["metadata"]["name"]
    assert settings.engine == f"ray://{name}-head-svc:10001"
    (group,) = RAY["spec"]["workerGroupSpecs"]
    assert settings.slots == group["maxReplicas"]
    for pod in (SERVER, *(pod["spec"] for pod in pods(RAY))):
        (container,) = pod["containers"]
        assert container["image"] == CONTAINER["image"]
        assert {"secretRef": {"name": "mistify-artifacts"}} in container["envFrom"]
        mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"] if mount["name"] == "data"]
        assert mounts == [settings.store.parent]
        assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" in IMAGE
    token = next(each for each in CONTAINER["env"] if each["name"] == "RAY_AUTH_TOKEN")
    assert token["valueFrom"]["secretKeyRef"]["name"] == name
    policy = manifest("NetworkPolicy", "mistify-ray")["spec"]
    assert policy["podSelector"]["matchLabels"] == {"ray.io/cluster": name}


def test_drains_take_one_worker_at_a_time() -> None:
    """Without a scale subresource, as of a RayCluster, `maxUnavailable` and percentages block all drains."""
    (group,) = RAY["spec"]["workerGroupSpecs"]
    labels = {"ray.io/cluster": RAY["metadata"]["name"], "ray.io/node-type": "worker"}
    budget = manifest("PodDisruptionBudget", "mistify-ray-workers")["spec"]
    assert budget == {"minAvailable": group["replicas"] - 1, "selector": {"matchLabels": labels}}


def test_ray_understands_the_cluster() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.scripts.scripts import start

    named = {**RAY, "metadata": {**RAY["metadata"], "namespace": "mistify"}}
    nodes = _derive_autoscaling_config_from_ray_cr(named)["available_node_types"]
    assert [node["resources"]["CPU"] for node in nodes.values()] == [0, 1]
    for group in (RAY["spec"]["headGroupSpec"], *RAY["spec"]["workerGroupSpecs"]):
        start.make_context("start", [f"--{name}={value}" for name, value in group["rayStartParams"].items()])
    services = yaml.safe_load(COMPOSE)["services"]
    flags = {
        name: start.make_context("start", services[name]["command"][2:]).params for name in ("head", "worker")
    }
    assert (flags["head"]["head"], flags["head"]["num_cpus"], flags["worker"]["num_cpus"]) == (True, 0, 1)
    assert flags["worker"]["address"] == f"head:{flags['head']['port']}"
    assert f"--engine=ray://head:{flags['head']['ray_client_server_port']}" in services["server"]["command"]


def test_the_image_has_all_packages_and_the_ray_of_the_cluster() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packages = find_packages(
        str(REPOSITORY), include=project["tool"]["setuptools"]["packages"]["find"]["include"]
    )
    copied = re.findall(r"^COPY (\w+) ", IMAGE, re.MULTILINE)
    assert sorted(copied) == sorted({package.partition(".")[0] for package in packages})
    (extras,) = re.findall(r"/usr/src/mistify\[([\w,]+)\]", IMAGE)
    assert set(extras.split(",")) <= project["project"]["optional-dependencies"].keys()
    assert set(extras.split(",")) == {"server", "ray", "s3", "postgresql"}
    assert f"ARG RAY_VERSION={RAY['spec']['rayVersion']}\n" in IMAGE


def test_the_compose_file_is_valid() -> None:
    composed = PyOptions(apply_merge=True).from_yaml(COMPOSE)
    composed.validate()
    services = composed.to_dict()["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        mounts = [volume.split(":")[0] for volume in service.get("volumes", ())]
        assert {name for name in mounts if not name.startswith("/")} <= composed.volumes.keys()


def test_a_mistake_in_the_compose_file_is_found() -> None:
    with pytest.raises(ValueError, match="helthcheck"):
        PyOptions(apply_merge=True).from_yaml(COMPOSE.replace("healthcheck:", "helthcheck:", 1))


def test_the_server_of_the_compose_file_starts_with_these_settings() -> None:
    service = yaml.safe_load(COMPOSE)["services"]["server"]
    command = [
        re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: VARIABLES[match[1]], word) for word in service["command"]
    ]
    assert command[0] == "mistify-server"
    settings = serve_settings(command[1:], {})
    inner = [DEFAULT_LISTEN.split(":")[1], DEFAULT_HTTP.split(":")[1]]
    assert [settings.listen, settings.http] == [f"0.0.0.0:{port}" for port in inner]
    published = [port.removeprefix("127.0.0.1:").split(":") for port in service["ports"]]
    assert [inside for _, inside in published] == inner
    assert service["healthcheck"]["test"][-1] == f"http://{DEFAULT_HTTP}/readyz"
    (volume,) = service["volumes"]
    assert settings.store.parent == Path(volume.split(":")[1])
    (secret,) = service["secrets"]
    assert settings.token_file == Path("/run/secrets", secret["source"])
    assert f"USER {secret['uid']}:{secret['gid']}" in IMAGE
