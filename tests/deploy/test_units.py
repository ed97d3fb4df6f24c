"""The Kubernetes manifest and the systemd unit, checked offline by the validators of either, and against the image."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import unstuck
from support.compose import ROOT, Compose
from support.programs import program
from unstuck.config import load

MANIFEST = ROOT / "deploy/kubernetes/sidecar.yaml"
UNIT = ROOT / "deploy/unstuck.service"
KUBERNETES = ("1.29", "1.33", "1.37")


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture(scope="module")
def pod(objects) -> dict[str, Any]:
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifest_is_valid_for_kubernetes(version):
    done = subprocess.run(
        [Path(sys.executable).parent / "kubernetes-validate", "--strict", "-k", version, MANIFEST],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class TestTheManifest:
    def test_the_agent_is_a_native_sidecar_that_starts_first(self, pod):
        (agent,) = pod["initContainers"]
        assert agent["restartPolicy"] == "Always"
        assert agent["args"] == ["run"]

    def test_both_containers_are_the_image_of_this_version(self, pod):
        for container in [*pod["initContainers"], *pod["containers"]]:
            assert container["image"] == f"unstuck:{unstuck.__version__}"

    def test_probes_and_scrapes_ask_the_port_of_the_image(self, objects, pod):
        (agent,) = pod["initContainers"]
        port = int(Compose().image_environment()["UNSTUCK_HTTP_LISTEN"].rpartition(":")[2])
        assert agent["ports"] == [{"name": "metrics", "containerPort": port}]
        for probe in ("startupProbe", "livenessProbe"):
            assert agent[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        annotations = objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/port"] == str(port)

    def test_it_runs_as_the_images_user_with_nothing_it_does_not_need(self, pod):
        user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        assert user
        assert pod["securityContext"]["runAsUser"] == int(user[1])
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["initContainers"], *pod["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]

    def test_every_mount_has_its_volume_and_every_key_its_file(self, objects, pod):
        volumes = {one["name"] for one in pod["volumes"]}
        for container in [*pod["initContainers"], *pod["containers"]]:
            for mount in container["volumeMounts"]:
                assert mount["name"] in volumes
                if "subPath" in mount:
                    assert mount["subPath"] in objects["ConfigMap"]["data"]

    def test_the_program_takes_its_configuration(self, objects, tmp_path):
        (tmp_path / "password").write_text("hush")
        text = objects["ConfigMap"]["data"]["unstuck.yaml"].replace("/etc/unstuck/secret", str(tmp_path))
        (tmp_path / "unstuck.yaml").write_text(text)
        settings = load(tmp_path / "unstuck.yaml", {})
        assert settings.mode.value == "observe"
        assert "hush" not in str(settings.address)


class TestTheUnit:
    @pytest.fixture
    def installed(self, tmp_path) -> Path:
        """The unit with a command that exists here, which is what its validator looks for."""
        copy = tmp_path / "unstuck.service"
        copy.write_text(UNIT.read_text().replace("/opt/unstuck/bin/unstuck", "/bin/true"))
        return copy

    def test_systemd_has_nothing_to_say_about_it(self, installed):
        analyze = program("systemd-analyze", package="systemd")
        done = subprocess.run([analyze, "verify", "--man=no", installed], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if str(installed) in line or "unstuck.service" in line]
        assert (done.returncode, said) == (0, [])

    def test_systemd_rates_it_as_well_protected(self, installed):
        analyze = program("systemd-analyze", package="systemd")
        command = [analyze, "security", "--offline=true", "--no-pager", "--threshold=15", installed]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_a_wrong_configuration_is_not_started_again_and_again(self):
        text = UNIT.read_text()
        assert "RestartPreventExitStatus=2" in text
        assert re.search(r"^StartLimitBurst=\d+$", text, re.MULTILINE)

    def test_its_command_is_one_that_the_program_has(self):
        command = re.search(r"^ExecStart=\S+/unstuck (.*)$", UNIT.read_text(), re.MULTILINE)
        assert command
        assert command[1].split()[0] == "run"
        assert shutil.which("unstuck", path=str(Path(sys.executable).parent))
