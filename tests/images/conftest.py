"""The images, built and run by buildah and podman without any engine running.

Images and containers live in a store of their own under .cache, so that nothing of this machine's
is touched. No container has a network but its own loopback.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASE = "localhost/aegis-test-base:debian-12"
BUILD_SECONDS = 600


class Podman:
    """podman and buildah over one store, with all containers they started."""

    def __init__(self, folder):
        self._containers = []
        store = ROOT / ".cache" / "images"
        store.mkdir(parents=True, exist_ok=True)
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{store}"\nrunroot = "{folder}/run"\n'
        )
        (folder / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
            'log_driver = "k8s-file"\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        self._environment = os.environ | {
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
        }

    def __call__(self, *command, check=True, program="podman", **options):
        """Run one podman command; gives what it printed."""
        done = subprocess.run(
            [program, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            env=self._environment,
            check=False,
            **options,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def base(self, root):
        """A small Debian as an image, imported once."""
        if self("image", "exists", BASE, check=False).returncode == 0:
            return
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            self("import", "-", BASE, stdin=tar.stdout)

    def build(self, name, wheels):
        """Build one of our images from the wheels."""
        self(
            "bud", "--isolation", "chroot", "--network", "host", "--format", "docker",
            "--layers=false", "--build-arg", f"BASE={BASE}",
            "--file", ROOT / "docker" / f"{name}.Dockerfile", "--tag", f"localhost/aegis-{name}",
            wheels,
            program="buildah",
        )  # fmt: skip

    def start(self, name, image, *arguments, options=(), network="none"):
        """Start a container that `close` removes."""
        name = f"aegis-test-{os.getpid()}-{name}"
        self("run", "--detach", "--name", name, "--network", network, *options,
             image, *arguments)  # fmt: skip
        self._containers.append(name)
        return name

    def logs(self, name):
        """Everything a container has said."""
        done = self("logs", name)
        return done.stdout + done.stderr

    def close(self):
        """Remove the containers, and the images that newer ones have replaced."""
        for name in reversed(self._containers):
            self("rm", "--force", "--volumes", "--time", "5", name, check=False)
        self("image", "prune", "--force", check=False)


def missing():
    """Why no image can be built here, or nothing."""
    if os.geteuid() != 0:
        return "building images needs root"
    tools = ("buildah", "podman", "runc", "debootstrap")
    absent = [tool for tool in tools if not shutil.which(tool)]
    return f"not installed: {', '.join(absent)}" if absent else ""


@pytest.fixture(scope="session")
def podman(tmp_path_factory):
    """Both images, built."""
    if reason := missing():
        pytest.skip(reason)
    made = subprocess.run(
        [ROOT / "tests/systemd/rootfs.sh"], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no Debian could be made: {made.stderr.strip()}")
    folder = tmp_path_factory.mktemp("podman")
    wheels = folder / "wheels"
    subprocess.run([HERE / "wheelhouse.sh", sys.executable, "3.11", wheels], check=True)
    podman = Podman(folder)
    podman.base(made.stdout.strip())
    podman.build("controller", wheels)
    podman.build("agent", wheels)
    yield podman
    podman.close()
