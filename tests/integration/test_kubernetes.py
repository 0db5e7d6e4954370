"""docker/kubernetes: the manifests are valid, hold to the restricted Pod Security Standard, and fit the service.

The schemas are those of Kubernetes itself, from PyPI's `kubernetes-validate`. Only a cluster can show that pods run.
"""

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dbio_commit import __version__
from tests.integration.test_docker import DOCKERFILES, PORT, last_stage, without_registry
from vacuum.config import Config
from vacuum.process import STOP_S

FOLDER = Path(__file__).parents[2] / "docker/kubernetes"
OLDEST, NEWEST = "1.27", "1.35"
"""`timeZone` of a CronJob is stable from the oldest on."""

OWN_MB = 200
"""What the service itself needs (docs/SCHEDULE.md)."""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


MANIFESTS = [it for path in sorted(FOLDER.glob("*.yaml")) for it in documents(path.name)]
DEPLOYMENT, SERVICE = documents("deployment.yaml")
(CRON_JOB,) = documents("cronjob.yaml")
(CONFIG_MAP,) = documents("config.yaml")
PODS: dict[str, dict[str, Any]] = {
    "deployment": DEPLOYMENT["spec"]["template"]["spec"],
    "cronjob": CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"],
}
IMAGE = last_stage(DOCKERFILES[0], "")
each_manifest = pytest.mark.parametrize("manifest", MANIFESTS, ids=[it["kind"] for it in MANIFESTS])
each_pod = pytest.mark.parametrize("pod", PODS.values(), ids=list(PODS))


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@each_manifest
def test_a_manifest_is_valid_and_has_no_field_that_kubernetes_does_not_know(
    manifest: dict[str, Any], version: str
) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_a_misspelt_field_is_found() -> None:
    wrong = copy.deepcopy(DEPLOYMENT)
    wrong["spec"]["template"]["spec"]["automountServiceAccountTokens"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="automountServiceAccountTokens"):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


def not_restricted(pod: dict[str, Any]) -> list[str]:
    """What the restricted Pod Security Standard refuses in a pod, and what this project asks for beyond it."""
    own, inner = pod.get("securityContext", {}), container(pod).get("securityContext", {})
    wanted = {
        "no host namespaces": not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(),
        "volumes": all(it.keys() <= {"name", "configMap", "emptyDir", "secret", "projected"} for it in pod["volumes"]),
        "no host port": all("hostPort" not in port for port in container(pod).get("ports", [])),
        "no other profile": inner.keys() <= {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"},
        "no escalation": inner.get("allowPrivilegeEscalation") is False,
        "not root": own.get("runAsNonRoot") is True and own.get("runAsUser", 0) > 0,
        "seccomp": own.get("seccompProfile") == {"type": "RuntimeDefault"},
        "capabilities": inner.get("capabilities") == {"drop": ["ALL"]},
        "read-only root": inner.get("readOnlyRootFilesystem") is True,
        "no token": pod.get("automountServiceAccountToken") is False,
        "one container": not {"initContainers", "ephemeralContainers"} & pod.keys(),
    }
    return [what for what, holds in wanted.items() if not holds]


@each_pod
def test_a_pod_is_restricted(pod: dict[str, Any]) -> None:
    assert not_restricted(pod) == []


@pytest.mark.parametrize("key", ["runAsNonRoot", "seccompProfile", "capabilities", "readOnlyRootFilesystem"])
def test_a_pod_that_lacks_a_restriction_is_found(key: str) -> None:
    weak = copy.deepcopy(PODS["deployment"])
    weak["securityContext"].pop(key, None)
    container(weak)["securityContext"].pop(key, None)
    assert len(not_restricted(weak)) == 1


@each_pod
def test_a_pod_runs_the_image_as_its_user_with_its_entry_point(pod: dict[str, Any]) -> None:
    it = container(pod)
    assert it["image"] == f"dbio-vacuum:{__version__}"
    assert without_registry(it["image"])
    assert "command" not in it
    assert it["args"][1:] == json.loads(IMAGE["CMD"])[1:]
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == IMAGE["USER"]
    assert pod["terminationGracePeriodSeconds"] > STOP_S
    mounts = {mount["name"]: mount["mountPath"] for mount in it["volumeMounts"]}
    assert mounts == {"config": "/etc/dbio", "tmp": IMAGE["WORKDIR"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}


@each_pod
def test_a_pod_has_the_memory_that_its_configuration_allows_the_runs(pod: dict[str, Any]) -> None:
    config = configuration()
    limit = int(re.fullmatch(r"(\d+)Mi", container(pod)["resources"]["limits"]["memory"])[1])  # type: ignore[index]
    runs = sum(sorted((it.memory_mb for it in config.entries), reverse=True)[: config.concurrency])
    assert limit >= max(runs, config.concurrency * config.memory_mb) + OWN_MB
    assert "cpu" not in container(pod)["resources"]["limits"], "a vacuum that is throttled only takes longer"


def configuration() -> Config:
    return Config.model_validate(tomllib.loads(CONFIG_MAP["data"]["vacuum.toml"]))


def test_the_configuration_is_valid_and_is_what_the_pods_mount() -> None:
    config = configuration()
    assert (config.http.host, str(config.http.port)) == ("0.0.0.0", PORT)
    for pod in PODS.values():
        assert [it["configMap"] for it in pod["volumes"] if "configMap" in it] == [
            {"name": CONFIG_MAP["metadata"]["name"]}
        ]
        assert container(pod)["args"][-1] == "/etc/dbio/vacuum.toml"


def test_the_service_and_the_probes_reach_the_listener_and_no_probe_restarts_for_a_table() -> None:
    pod = PODS["deployment"]
    (port,) = container(pod)["ports"]
    assert str(port["containerPort"]) == PORT
    assert SERVICE["spec"]["ports"] == [{"name": port["name"], "port": port["containerPort"], "targetPort": "http"}]
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(pod)[name]["httpGet"] == {"path": "/", "port": "http"}
    assert DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == PORT


def test_a_run_of_the_cron_job_does_not_begin_beside_another() -> None:
    assert CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"
    assert container(PODS["cronjob"])["args"][0] == "once"
    assert container(PODS["deployment"])["args"][0] == "serve"
    assert DEPLOYMENT["spec"]["strategy"] == {"type": "Recreate"}
