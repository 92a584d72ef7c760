"""What describes a cluster, held against schemas, and its parts against each other."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from pydantic import BaseModel

from tests.pages import ROOT

COMPOSE = ROOT / "cluster" / "compose.yaml"
KUBERNETES = ROOT / "cluster" / "kubernetes"
SCRIPTS = (ROOT / "cluster" / "secrets.sh", ROOT / "cluster" / "slurm" / "headrace.sbatch")
VERSION = "1.33"
# Of KubeRay's own definitions, v1: the keys that we use.
KUBERAY = {
    "RayCluster": {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"},
    "RayJob": {"entrypoint", "submissionMode", "clusterSelector"},
}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def documents() -> list[dict[str, Any]]:
    """All objects for Kubernetes."""
    files = sorted(path for path in KUBERNETES.glob("*.yaml") if path.stem != "kustomization")
    return [one for path in files for one in yaml.safe_load_all(path.read_text())]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [one for one in documents() if one["kind"] in kinds]


def pods() -> list[dict[str, Any]]:
    """The templates of all pods."""
    made = [one["spec"]["template"] for one in of_kind("Deployment", "StatefulSet")]
    (ray,) = of_kind("RayCluster")
    groups = [ray["spec"]["headGroupSpec"], *ray["spec"]["workerGroupSpecs"]]
    return made + [group["template"] for group in groups]


def containers() -> list[dict[str, Any]]:
    specs = [pod["spec"] for pod in pods()]
    return [one for s in specs for one in s["containers"] + s.get("initContainers", [])]


@pytest.fixture(scope="module")
def secrets() -> set[str]:
    """The names that `secrets.sh` gives a value to, all of them another."""
    script = ["sh", str(ROOT / "cluster" / "secrets.sh")]
    lines = [
        subprocess.run(script, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    known = [dict(line.split("=", 1) for line in one) for one in lines]
    assert {name for name, value in known[0].items() if known[1][name] == value} == {
        "AWS_ACCESS_KEY_ID"
    }
    assert all(len(value) >= 48 for name, value in known[0].items() if name[-2:] != "ID")
    return set(known[0])


def test_objects_are_valid_for_kubernetes() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="uv sync")
    for one in documents():
        if one["kind"] not in KUBERAY:
            validator.validate(one, VERSION, strict=True)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-ray"}}
    for template in pods():
        validator.validate(pod | {"spec": template["spec"]}, VERSION, strict=True)
    with pytest.raises(validator.ValidationError):
        validator.validate(pod | {"spec": template["spec"] | {"tolerate": []}}, VERSION, True)


def test_objects_of_kuberay_have_its_keys() -> None:
    for one in of_kind(*KUBERAY):
        assert one["apiVersion"] == "ray.io/v1"
        assert set(one["spec"]) == KUBERAY[one["kind"]]
    (cluster,) = of_kind("RayCluster")
    (job,) = of_kind("RayJob")
    groups = cluster["spec"]["workerGroupSpecs"]
    assert [group["groupName"] for group in groups] == ["cpu", "gpu"]
    assert all(set(group) == GROUP for group in groups)
    assert job["spec"]["clusterSelector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    wanted = groups[1]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert wanted["nvidia.com/gpu"] == "1"


def test_kustomize_takes_every_file_but_the_job() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    there = {path.name for path in KUBERNETES.glob("*.yaml")}
    assert {*listed} == there - {"kustomization.yaml", "job.yaml"}


def test_the_parts_in_kubernetes_know_each_other(secrets: set[str]) -> None:
    named = {one["metadata"].get("name") for one in documents()}
    ports = {
        one["metadata"]["name"]: {port["port"] for port in one["spec"]["ports"]}
        for one in of_kind("Service")
    }
    labels = [pod["metadata"]["labels"] for pod in pods() if "metadata" in pod]
    for service in of_kind("Service"):
        assert service["spec"]["selector"] in labels
    for one in containers():
        for source in one.get("envFrom", []):
            assert source.get("configMapRef", source.get("secretRef"))["name"] in named
        for variable in one.get("env", []):
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            assert key is None or (key["name"], key["key"] in secrets) == ("headrace", True)
            assert "PASSWORD" not in variable["name"] or key, "a secret stands in no manifest"
    (given,) = [
        one["data"] for one in of_kind("ConfigMap") if one["metadata"]["name"] == "headrace"
    ]
    for url in filter(None, map(urlsplit, given.values())):
        if url.scheme == "http":
            assert url.port in ports[str(url.hostname)]
    assert "auth_token" in secrets, "by which KubeRay finds Ray's token in the Secret"


def test_pods_run_confined_and_under_limits() -> None:
    for pod in pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    for one in containers():
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["resources"]["limits"]["memory"]


def test_compose_is_valid() -> None:
    models = pytest.importorskip("compose_spec.models", reason="uv sync")
    found = yaml.safe_load(COMPOSE.read_text())
    models.ComposeSpecification.model_validate(found)
    assert unknown(models.Service, found["services"]) == set()
    assert unknown(models.Service, {"a": {"imagge": "b"}}) == {"imagge"}


def unknown(model: type[BaseModel], services: dict[str, Any]) -> set[str]:
    """The keys of services that the specification does not have."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    return {key for service in services.values() for key in service} - known


def test_the_parts_of_compose_know_each_other(secrets: set[str]) -> None:
    text = COMPOSE.read_text()
    found = yaml.safe_load(text)
    services = found["services"]
    asked = re.findall(r"\$\{(\w+)(:[-?][^}]*)?\}", text)
    assert {name for name, default in asked if not default.startswith(":-")} <= secrets
    given = [value for s in services.values() for value in s.get("environment", {}).values()]
    for url in map(urlsplit, given):
        if url.scheme == "http" and url.hostname != "localhost":
            assert url.hostname in services
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in found["volumes"]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "nothing is open to the network by default"


def test_versions_are_those_that_are_pinned() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.M))
    (cluster,) = of_kind("RayCluster")
    assert cluster["spec"]["rayVersion"] == pinned["ray"]


def test_images_are_named_without_a_host() -> None:
    named = [
        service["image"] for service in yaml.safe_load(COMPOSE.read_text())["services"].values()
    ]
    named += [one["image"] for one in containers()]
    named += re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    hosts = [name for name in named if "/" in name and re.search(r"[.:]", name.split("/")[0])]
    assert len(named) > 10 and hosts == []


def test_the_image_has_what_the_package_has() -> None:
    """What is copied into it exists, is sent to the builder, and is all that a wheel is made of."""
    import tomllib

    text = (ROOT / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for name in line.split()}
    sent = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.M))
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert copied >= {*wheel, "pyproject.toml", project["project"]["readme"]}
    assert "cluster" in project["project"]["optional-dependencies"]


@pytest.mark.parametrize("device", ["cpu", "cuda", "tpu"])
def test_the_device_of_an_image_is_cpu_or_cuda(device: str, tmp_path: Path) -> None:
    """Its command is run with a `uv` that only says what it is asked for."""
    text = (ROOT / "Dockerfile").read_text()
    (command,) = re.findall(r"^RUN (case .*?[^\\])$", text, re.M | re.S)
    (tmp_path / "uv").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "uv").chmod(0o755)
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    done = subprocess.run(
        ["sh", "-euc", command],
        cwd=tmp_path,
        env={"DEVICE": device, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("--torch-backend=cpu" in done.stdout) is (device == "cpu")
    assert done.returncode == (device == "tpu")
    if device != "tpu":
        versions = (tmp_path / "versions.txt").read_text()
        assert re.search(r"^torch==[\d.]+", versions, re.M) and "sha256" not in versions


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if not shellcheck:
        pytest.skip("uv sync")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
