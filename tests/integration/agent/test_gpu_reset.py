"""A GPU's reset, from the kernel's first word to the first reading after it."""

import time

from aegis_agent.simulated import devices

ADDRESS = "0000:15:00.0"  # of gpu1


def test_a_gpu_is_healthy_after_a_reset_that_its_error_counters_survive(
    start_agent, controller, gpus, tmp_path
):
    """Unhealthy by its error, unknown while it is reset, and never lost."""
    log = tmp_path / "kmsg"
    log.touch()

    def say(number, text):
        with log.open("a") as kernel:
            at = int(time.monotonic() * 1e6)
            kernel.write(f"4,{number},{at},-;amdgpu {ADDRESS}: amdgpu: {text}\n")

    start_agent("--kernel-log", str(log))
    controller.wait_device("gpu1", "healthy")
    controller.wait(lambda: dict(controller.last.sources).get("kernel"), "the kernel log")
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    controller.wait_device("gpu1", "unhealthy")
    say(1, "GPU reset begin!")
    controller.wait_fault("gpu.reset.begin")
    devices.set_lost(gpus, 1, lost=True)
    assert "being reset" in controller.wait_device("gpu1", "unknown").detail
    for _ in range(5):
        controller.wait_fresh("gpu1")
    devices.set_lost(gpus, 1, lost=False)
    say(2, "GPU reset(2) succeeded!")
    controller.wait_device("gpu1", "healthy")
    assert "gpu.lost" not in controller.classes()
    devices.set_counts(gpus, 1, "umc", (0, 2, 0))
    controller.wait_device("gpu1", "unhealthy")
