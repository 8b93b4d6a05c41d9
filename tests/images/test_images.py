"""The container images: built offline, started without rights, healthy when they say so."""

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 90
SHUT_IN = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"

pytestmark = pytest.mark.root


def wait_for(ready, what):
    until = time.monotonic() + PATIENCE_SECONDS
    while not (result := ready()):
        assert time.monotonic() < until, f"waited {PATIENCE_SECONDS} s for {what}"
        time.sleep(0.2)
    return result


def get(podman, controller, path):
    """Ask the controller from inside its own network; empty while it does not answer."""
    url = f"http://127.0.0.1:8500{path}"
    return podman("exec", controller, "python", "-c", GET, url, check=False).stdout.strip()


def is_healthy(podman, name):
    """What the image's own health check says."""
    return podman("healthcheck", "run", name, check=False).returncode == 0


@pytest.fixture(scope="module")
def controller(podman):
    """A controller started by nothing but its image's own command."""
    name = podman.start("controller", "localhost/aegis-controller", options=SHUT_IN)
    wait_for(lambda: get(podman, name, "/livez") == "ok", "the controller to answer")
    return name


@pytest.fixture(scope="module")
def agent(podman, controller, tmp_path_factory):
    """An agent beside it, with a token minted for it, on a machine without GPUs."""
    token = tmp_path_factory.mktemp("token") / "node.token"
    token.write_text(
        podman(
            "exec", controller, "aegis", "nodes", "token", "n1",
            "--token-file", "/var/lib/aegis/admin.token",
        ).stdout
    )  # fmt: skip
    token.chmod(0o444)
    return podman.start(
        "agent", "localhost/aegis-agent", "--node=n1", "--token-file=/run/node.token",
        options=(*SHUT_IN, f"--volume={token}:/run/node.token:ro"),
        network=f"container:{controller}",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["controller", "agent"])
def test_the_image_is_for_an_unprivileged_user(podman, name):
    """Kubernetes' runAsNonRoot wants a number."""
    image = json.loads(podman("image", "inspect", f"localhost/aegis-{name}").stdout)[0]
    user, _, group = image["Config"]["User"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert "Healthcheck" in image or "Healthcheck" in image["Config"]


@pytest.mark.parametrize("name", ["controller", "agent"])
def test_the_image_holds_no_wheels_and_no_pip(podman, name):
    """What built it stays outside."""
    done = podman(
        "run", "--rm", "--network=none", "--entrypoint=/bin/ls", f"localhost/aegis-{name}",
        "/wheels", "/opt/aegis/bin/pip", check=False,
    )  # fmt: skip
    assert done.stderr.count("No such file or directory") == 2, done.stdout + done.stderr


def test_the_controller_serves_the_dashboard_and_its_health(podman, controller):
    """The image carries the built dashboard and the shipped rules."""
    assert "<script" in get(podman, controller, "/")
    assert get(podman, controller, "/readyz") == "ok"
    assert json.loads(get(podman, controller, "/api/v1/rules"))["rules"]
    assert is_healthy(podman, controller)


@pytest.mark.parametrize("name", ["controller", "agent"])
def test_the_process_runs_without_rights(podman, controller, agent, name):
    """Neither root nor capabilities, seen from the kernel."""
    container = {"controller": controller, "agent": agent}[name]
    status = podman("exec", container, "/bin/cat", "/proc/1/status").stdout
    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split()[0] != "0"
    assert int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"] == "1"


def test_an_agent_without_a_gpu_library_says_so_and_reports(podman, controller, agent):
    """No data is unknown, never healthy: the node is there, its GPUs are not claimed to be."""
    wait_for(lambda: get(podman, controller, "/api/v1/nodes/n1"), "the agent's first report")
    node = json.loads(get(podman, controller, "/api/v1/nodes/n1"))
    healthy = [one["kind"] for one in node["devices"] if one["health"] == "healthy"]
    assert "gpu" not in healthy
    assert wait_for(
        lambda: "libamd_smi" in (log := podman.logs(agent)) and log, "a word on the library"
    )
    assert is_healthy(podman, agent)


def test_stopping_is_quick_and_clean(podman, controller, agent):
    """SIGTERM is enough; podman would kill after ten seconds."""
    for name in (agent, controller):
        podman("stop", "--time", "30", name)
        state = json.loads(podman("container", "inspect", name).stdout)[0]["State"]
        assert state["ExitCode"] == 0, podman.logs(name)


def test_hadolint_has_nothing_against_the_dockerfiles():
    """As pre-commit and CI run it."""
    files = sorted((ROOT / "docker").glob("*.Dockerfile"))
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_version_in_the_dockerfiles_is_the_projects():
    """The build installs exactly this version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for file in (ROOT / "docker").glob("*.Dockerfile"):
        assert f"ARG VERSION={version}\n" in file.read_text()
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    assert {service["image"].split(":")[1] for service in services.values()} == {version}
