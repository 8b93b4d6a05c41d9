"""Lines of network adapters and of RDMA, under every name that their printers put before them.

    ionic 0000:b5:00.0: FW stopped 0xf0                       dev_err
    mlx5_core 0000:61:00.0 eth0: TX timeout detected          netdev_err, ibdev_err
    infiniband bnxt_re0: Failed to allocate HW AH             ibdev_err
    NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 …     before 6.8
    bond0: (slave eth0): link status definitely down, …

The device of a finding is the interface or RDMA device where the line names one, else the PCI
address; `address` among the details is the PCI address beside an interface.
"""

import re
from dataclasses import replace

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel import nic_drivers, pcie
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Finding, Pattern, Table

_LINK = (
    r"^(?:\w+: (?=\S+:? (?:nic )?link\b))?(?:(?!nic |port |link )(?P<interface>[a-z][\w.@-]*):? )?"
    r"(?:nic |port \d+ )?link (?:is |went |state is |status (?:is |definitely )?)?"
)
_OF_BOND = r"\b(?: for (?:active )?interface (?P<interface__2>[\w.@-]+))?"

# fmt: off
ANY = (
    Pattern(F.NIC_LINK_DOWN, ERROR, "down", _LINK + r"down" + _OF_BOND,
            "i40e 0000:3d:00.0 eno1: NIC Link is Down", "every driver"),
    Pattern(F.NIC_LINK_UP, INFO, "up", _LINK + r"up" + _OF_BOND + r"(?:[ ,:at-]*(?P<speed>\d+ ?[MG]bps))?",
            "ice 0000:16:00.0 ens1f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC", "every driver"),
    Pattern(F.NIC_TX_TIMEOUT, ERROR, "transmit queue", r"netdev watchdog: .*transmit queue (?P<queue>\d+) timed out(?: (?P<milliseconds>\d+) ms)?",
            "ionic 0000:b5:00.0 enp181s0: NETDEV WATCHDOG: CPU: 9: transmit queue 17 timed out 5312 ms", "sch_generic.c"),
    Pattern(F.NIC_TX_TIMEOUT, ERROR, "time", r"\b(?:tx|transmit) time(?:d ?)?out\b(?! (?:value|period|is|set))(?:.* (?:queue:?|txq) ?(?P<queue>\d+))?|reset due to tx timeout",
            "ionic 0000:b5:00.0 enp181s0: Tx Timeout triggered - txq 4", "every driver"),
    Pattern(F.NIC_TX_TIMEOUT, ERROR, "tx", r"\btx (?:unit )?hang\b|\btx queue \d+ (?:stuck|hung|stalled)",
            "atlantic 0000:05:00.0 enp5s0: Tx hang on queue 2", "every driver"),
    Pattern(F.NIC_PCIE_LOST, FATAL, "", r"\bpcie link (?:is )?lost|device inaccessible|config space inaccessible|pci(?:e)? (?:i/o |channel )?error detected|pci_err(?:or)?_detected\b|\berror detected: \w+_pci_error_detected"
            r"|pci (?:device|slot) is (?:unavailable|gone)|lost pci|device is (?:gone|not accessible)",
            "igc 0000:07:00.0 enp7s0: PCIe link lost, device now detached", "igc_main.c, bnxt.c, mlx5 main.c"),
    Pattern(F.NIC_REMOVED, FATAL, "", r"disabling already-disabled device|\badapter removed\b|surprise remov\w+",
            "ixgbe 0000:04:00.0: Adapter removed", "pci.c, ixgbe_main.c"),
    Pattern(F.NIC_MODULE_UNPLUGGED, ERROR, "unplug", r"\b(?:cable|module|transceiver|sfp\+?|qsfp\S*)\b.*\bunplugged",
            "ionic 0000:b5:00.0 enp181s0: transceiver unplugged", "every driver"),
    Pattern(F.NIC_MODULE_TEMPERATURE, WARNING, "temperature", r"\b(?:module|transceiver|sfp\+?|qsfp\S*|cable|nic)\b.*\b(?:high|over|critical|excessive)[- ]?temperature|temperature .*(?:too high|exceed\w*|critical)",
            "ionic 0000:b5:00.0 enp181s0: module over-temperature alarm", "every driver"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "queue", r"\bfail\w* to (?P<action>start|stop|init(?:ialize)?|enable|alloc(?:ate)?|reset|setup|set up|restart|create|config\w*|open) (?:the )?(?:\w+ ){0,3}?(?:queues?|rings?)\b(?:.*?(?P<status>-\d+))?",
            "ionic 0000:b5:00.0 enp181s0: Failed to init rx queues: -5", "ionic_lif.c, every driver"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "queue", r"\b(?:tx|rx|admin|notify|completion|event) ?queues?(?: \d+)? (?:is )?(?:error|hung|stuck|stalled|overflow\w*|failed)\b",
            "ena 0000:00:05.0 eth0: Rx queue 3 stalled", "every driver"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "ring", r"\b(?:tx|rx|completion) ?rings?(?: \d+)? (?:is )?(?:error|hung|stuck|stalled|overflow\w*|failed)\b",
            "bnxt_en 0000:3b:00.0 ens3f0np0: RX ring 3 error, resetting", "every driver"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "error state", r"\bqp ?(?P<queue>\d+)?\b.*\b(?:entered|moved to|went to|is in) (?:the )?error state",
            "ionic_rdma 0000:b5:00.0: QP 114 entered error state, status 7", "every driver"),
    Pattern(F.NIC_MODULE_UNPLUGGED, ERROR, "remov", r"\b(?:optical|transceiver|sfp\+?|qsfp\S*|cable|pluggable)(?: module)? (?:has been |was |is )?removed\b",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Optical module has been removed", "every driver"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "", r"\b(?:fw|firmware|internal) (?:fatal )?error detected|\b(?:firmware|device|adapter|hca) reset (?:has )?(?:failed|timed out)|firmware (?:has )?(?:crashed|asserted|died)",
            "mlx4_core 0000:04:00.0: Internal error detected:", "mlx4 catas.c"),
    Pattern(F.NIC_FIRMWARE_RECOVERED, INFO, "recover", r"\b(?:firmware|fw|device|adapter) (?:has |is |was )?recovered|recovery (?:succeeded|successful|completed?)",
            "qede 0000:18:00.0 eth2: Firmware recovered", "every driver"),
    Pattern(F.NIC_FIRMWARE_RESET, WARNING, "reset", r"\b(?:device|adapter|firmware|fw|hca|nic|chip|port|function|hardware)\b[\w ]* (?:is going to be|is being|will be|was|has been) reset\b(?! to)|\bresetting (?:the )?(?:device|adapter|firmware|nic|chip|controller|hw|hardware|lif|function|port)\b"
            r"|\b(?:firmware|fw|emp|device|adapter|hw|hardware|chip|function[- ]level) reset (?:started|start|in progress|requested|initiated|triggered|event|detected)\b|\b(?:firmware|fw) reset (?:done|complete\w*|succe\w+)\b|\bpci slot reset\b"
            r"|^(?!.*\b(?:not?|without)\b).*(?:\breset\b.*\b(?:request\w*|pending|required|needed|in progress)\b|\b(?:request\w*|perform\w*|schedul\w*|initiat\w*|start\w*|trigger\w*|issu\w*|enter\w*)\b.*\breset\b)",
            "mlx4_core 0000:04:00.0: device is going to be reset", "mlx4 catas.c"),
)
RDMA = (
    Pattern(F.NIC_RDMA_ERROR, ERROR, "", r"^(?!.*\b(?:register|optional|not supported|query|debugfs|sysfs|cleared)\b).*\b(?:fail\w*|fatal|timed? ?out|catastrophic|error|async(?:hronous)? event(?!.*\b(?:active|up|lid|gid|pkey|sm|established|reregister)\b))\b",
            "infiniband ionic_2: Failed to modify QP", "drivers of RDMA devices"),
)
# fmt: on

_TABLES = {
    "ionic": Table(nic_drivers.IONIC, ANY, pcie.PATTERNS),
    "mlx5": Table(nic_drivers.MLX5, ANY, pcie.PATTERNS),
    "bnxt": Table(nic_drivers.BNXT, ANY, pcie.PATTERNS),
    "intel": Table(nic_drivers.INTEL, ANY, pcie.PATTERNS),
    "any": Table(ANY, pcie.PATTERNS),
    "rdma": Table(nic_drivers.MLX5, nic_drivers.BNXT, nic_drivers.IONIC, RDMA),
}
_LINKS = Table(ANY[:2])
_FAMILIES = {
    "ionic": "ionic ionic_rdma",
    "mlx5": "mlx5_core mlx5_ib mlx5_en",
    "bnxt": "bnxt_en bnxt_re",
    "intel": "ice i40e iavf igb igc ixgbe ixgbevf e1000 e1000e idpf fm10k",
    "any": "mlx4_core mlx4_en mlx4_ib bnx2x tg3 r8169 ena efa gve mana qed qede cxgb4 atlantic nfp sfc "
    "hns3 hinic virtio_net vmxnet3 txgbe ngbe enic be2net octeon_ep netxen_nic alx",
    "rdma": "infiniband irdma hfi1 qib iw_cxgb4 rdma_rxe siw",
}
DRIVERS = {driver: family for family, drivers in _FAMILIES.items() for driver in drivers.split()}

_PCI = r"(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"
_HEAD = re.compile(
    r"(?P<driver>[\w-]+)(?:\.\w+)*(?: (?P<address>" + _PCI + r")| (?P<bus>[\w.-]+))?"
    r"(?: (?P<name>[\w.@-]+|\(unnamed net_device\)))?(?: \(\w+\))*: *"
)
_RDMA_DEVICE = re.compile(r"(?P<name>mlx[45]_\d+|bnxt_re\d+|ionic_\d+|irdma\d+|roce\w+|ibp\w+)\b")
_WATCHDOG = re.compile(r"NETDEV WATCHDOG: (?P<name>[\w.@-]+)(?: \((?P<driver>[\w-]+)\))?: ")
_PLAIN = re.compile(
    r"(?P<name>(?:e(?:n|th)|ib|p\d+p|bond|hsn|rdma|roce)[\w.@-]*): (?P<message>(?:nic )?link .*)",
    re.IGNORECASE,
)
# "bond0: (slave eth0): link status definitely down, …", and before 5.3 "… down for interface eth0"
_BONDING = re.compile(
    r"(?:bonding: )?[\w-]+: (?:\(slave (?P<name>[\w.@-]+)\): )?(?P<message>link status (?:definitely )?(?:down|up).*)",
    re.IGNORECASE,
)


def classify(text: str) -> Finding | None:
    """A line that begins with the name of a driver of network adapters."""
    head = _HEAD.match(text)
    if head is None:
        return None
    family = DRIVERS.get(head["driver"], "any")
    name = head["name"] or (head["bus"] if family == "rdma" else "") or ""
    name = "" if name.startswith("(") else name
    finding = _read(_TABLES[family], text, head, name)
    if finding is None and _RDMA_DEVICE.match(name):
        return _read(_TABLES["rdma"], text, head, name)
    return finding


def classify_unnamed(first: str, text: str) -> Finding | None:
    """A line that begins with a device, or with a driver that is not known."""
    if first.endswith(":"):
        return classify_interface(text) if "link" in text.lower() else None
    if ":" in first:
        return classify_verbs(text)
    return classify(text) if ": NETDEV WATCHDOG: " in text else None


def classify_link(text: str) -> Finding | None:
    """A line of any other driver that names an interface of its own: only of its link."""
    head = _HEAD.match(text)
    return _read(_LINKS, text, head, head["name"]) if head is not None and head["name"] else None


def classify_verbs(text: str) -> Finding | None:
    """A line that begins with an RDMA device, as "mlx5_0:dump_cqe:272:(pid 0): dump error cqe"."""
    head = _RDMA_DEVICE.match(text)
    return head and _TABLES["rdma"].read(text[head.end() + 1 :], head["name"], text)


def classify_interface(text: str) -> Finding | None:
    """A line that begins with an interface, or with a bond that speaks of one in it."""
    head = _BONDING.match(text) or _PLAIN.match(text)
    if head is None:
        return None
    finding = _LINKS.read(head["message"], head["name"] or "", text)
    if finding is None or finding.device:
        return finding
    details = dict(finding.details)
    return replace(finding, device=details.pop("interface", ""), details=details)


def classify_watchdog(text: str) -> Finding | None:
    """The watchdog of every interface, before it spoke in the name of the device."""
    head = _WATCHDOG.match(text)
    if head is None:
        return None
    finding = _TABLES["any"].read(text, head["name"], text)
    if finding is None or not head["driver"]:
        return finding
    return replace(finding, details={**finding.details, "driver": head["driver"]})


def _read(table: Table, text: str, head: re.Match[str], name: str) -> Finding | None:
    """Read the message after its head; an interface in the message goes before the address."""
    finding = table.read(text[head.end() :], name, text)
    if finding is None:
        return None
    details = dict(finding.details)
    inside = details.pop("interface", "")
    address = head["address"] or head["bus"] or ""
    device = name or inside or address
    if head["address"] and device != address:
        details["address"] = address
    return replace(finding, device=device, details=details)
