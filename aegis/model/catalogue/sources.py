"""What the catalogue's entries refer to."""

from aegis.model.catalogue.entry import Reference

_LINUX = "https://github.com/torvalds/linux/blob/master/"
_KERNEL = "https://docs.kernel.org/"


def linux(path: str) -> Reference:
    """A file of the Linux kernel's source: where the log line is printed."""
    return Reference(title=f"Linux: {path}", url=_LINUX + path)


def amdgpu(name: str) -> Reference:
    """A file of the amdgpu driver."""
    return linux(f"drivers/gpu/drm/amd/{name}")


def kernel_page(title: str, path: str) -> Reference:
    """A page of the kernel's documentation."""
    return Reference(title=f"Linux documentation: {title}", url=_KERNEL + path)


AMDGPU_RAS = kernel_page("AMDGPU RAS support", "gpu/amdgpu/ras.html")
AMDSMI = Reference(
    title="AMD SMI documentation", url="https://rocm.docs.amd.com/projects/amdsmi/en/latest/"
)
INSTINCT = Reference(title="AMD Instinct documentation", url="https://instinct.docs.amd.com/")
XID = Reference(
    title="NVIDIA: Xid errors",
    url="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
)
NVIDIA_MEMORY = Reference(
    title="NVIDIA: GPU memory error management",
    url="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
)
AER = kernel_page("PCI Express Advanced Error Reporting", "PCI/pcieaer-howto.html")
AER_COUNTERS = linux("Documentation/ABI/testing/sysfs-bus-pci-devices-aer")
PCI_RECOVERY = kernel_page("PCI error recovery", "PCI/pci-error-recovery.html")
RAS = kernel_page("Reliability, availability and serviceability", "admin-guide/RAS/main.html")
APEI = kernel_page("APEI output format", "firmware-guide/acpi/apei/output_format.html")
HWPOISON = kernel_page("hwpoison", "mm/hwpoison.html")
OPERSTATES = kernel_page("Operational states of links", "networking/operstates.html")
NET_SYSFS = linux("Documentation/ABI/testing/sysfs-class-net")
DEVLINK_HEALTH = kernel_page("Devlink health", "networking/devlink/devlink-health.html")
MLX5 = kernel_page("mlx5 devlink support", "networking/devlink/mlx5.html")
IONIC = kernel_page(
    "Pensando Ethernet driver", "networking/device_drivers/ethernet/pensando/ionic.html"
)
INFINIBAND_SYSFS = linux("Documentation/ABI/stable/sysfs-class-infiniband")
WATCHDOGS = kernel_page("Lockup watchdogs", "admin-guide/lockup-watchdogs.html")
CGROUPS = kernel_page("Control groups v2", "admin-guide/cgroup-v2.html")
ELASTIC = Reference(
    title="PyTorch: torchrun", url="https://docs.pytorch.org/docs/stable/elastic/run.html"
)
LLAMA = Reference(
    title="The Llama 3 herd of models, section 3.3.4: what interrupted training",
    url="https://arxiv.org/abs/2407.21783",
)
RELIABILITY = Reference(
    title="Revisiting reliability in large-scale machine learning research clusters",
    url="https://arxiv.org/abs/2410.21680",
)
