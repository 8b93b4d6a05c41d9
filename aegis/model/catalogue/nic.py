"""Network cards, their ports and their firmware."""

from aegis.model.catalogue.entry import Entry
from aegis.model.catalogue.sources import (
    DEVLINK_HEALTH,
    INFINIBAND_SYSFS,
    IONIC,
    LLAMA,
    MLX5,
    NET_SYSFS,
    OPERSTATES,
    RELIABILITY,
    kernel_page,
    linux,
)
from aegis.model.fault import FaultClass, Severity

_LINK = "one port of one network card"
_CARD = "one network card"
_MLX5_EVENTS = linux("drivers/net/ethernet/mellanox/mlx5/core/events.c")

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.NIC_LINK_DOWN: Entry(
        title="Network link down",
        description=(
            "A port of the training fabric has no carrier: cable, optics, switch port, or the card."
        ),
        effect="Collectives wait and try again for a few seconds; then ranks end with a time-out.",
        severity=Severity.ERROR,
        scope=_LINK,
        seen=("netlink", "carrier counters", "RDMA port state", "kernel log"),
        answer=(
            "Wait out the hold-down: collectives outlive a short flap. A link that stays down "
            "takes the node out; many at once are the switch or maintenance."
        ),
        check=(
            "`ip -s link show PORT` and `ethtool PORT`: carrier, speed, what the partner offers",
            "`ethtool -m PORT`: light that goes out and comes in",
            "The switch's side of the cable, and whether its neighbours are down too",
        ),
        references=(OPERSTATES, NET_SYSFS, IONIC, LLAMA),
    ),
    FaultClass.NIC_LINK_UP: Entry(
        title="Network link up",
        description="A port that was down has its carrier again.",
        effect="None: collectives that waited go on.",
        severity=Severity.INFO,
        scope=_LINK,
        seen=("netlink", "carrier counters", "kernel log"),
        answer="None; how long and how often it was down is counted.",
        check=(
            "`aegis nodes show NODE`: how often the carrier was lost",
            "`ethtool PORT`: the speed it came back with",
        ),
        references=(OPERSTATES, NET_SYSFS),
    ),
    FaultClass.NIC_LINK_FLAP: Entry(
        title="Network link flaps",
        description=(
            "The carrier is lost and comes back, again and again, or faster than anyone saw it: "
            "a dirty or badly seated cable, tired optics."
        ),
        effect="Each flap stops collectives for a moment; the job is slow or ends.",
        severity=Severity.WARNING,
        scope=_LINK,
        seen=("carrier counters", "netlink", "kernel log"),
        answer="Tell people; clean, reseat, swap the cable, in that order.",
        check=(
            "`cat /sys/class/net/PORT/carrier_changes`: whether it still grows",
            "`ethtool -S PORT | grep -iE 'fec|symbol|err'`: errors on the wire",
            "`ethtool -m PORT`: light levels against those of its neighbours",
        ),
        references=(NET_SYSFS, RELIABILITY),
    ),
    FaultClass.NIC_FIRMWARE_FATAL: Entry(
        title="Network card firmware failed",
        description="The card's firmware has stopped and says that it cannot recover by itself.",
        effect="All ports of the card are dead.",
        severity=Severity.FATAL,
        scope=_CARD,
        seen=("kernel log", "devlink health"),
        answer="Move the ranks off; reset the card or reboot.",
        check=(
            "`devlink health show`: the reporter in state error, and its dump",
            '`dmesg -T | grep -iE "health|firmware|FW"`',
            "`devlink dev info`: the firmware's version against its neighbours'",
        ),
        references=(
            DEVLINK_HEALTH,
            MLX5,
            linux("drivers/net/ethernet/mellanox/mlx5/core/health.c"),
        ),
    ),
    FaultClass.NIC_FIRMWARE_STALLED: Entry(
        title="Network card firmware stalled",
        description="The card's firmware misses its heartbeat. It often comes back by itself.",
        effect="Traffic of this card stands still meanwhile.",
        severity=Severity.ERROR,
        scope=_CARD,
        seen=("kernel log", "devlink health"),
        answer="Wait for it to recover; a link that goes down with it is judged as such.",
        check=(
            '`dmesg -T | grep -iE "heartbeat|FW (Up|Down)"`: whether it is back',
            "`aegis nodes show NODE`: the state of its ports",
        ),
        references=(IONIC, linux("drivers/net/ethernet/pensando/ionic/ionic_dev.c")),
    ),
    FaultClass.NIC_FIRMWARE_RECOVERED: Entry(
        title="Network card firmware recovered",
        description="Firmware that had stalled or was restarted works again.",
        effect="None: traffic flows again.",
        severity=Severity.INFO,
        scope=_CARD,
        seen=("kernel log", "devlink health"),
        answer="None.",
        check=(
            "`ip link show` and `rdma link`: every port is up again",
            "How often: a card that stalls every day is replaced",
        ),
        references=(IONIC, linux("drivers/net/ethernet/pensando/ionic/ionic_lif.c")),
    ),
    FaultClass.NIC_FIRMWARE_RESET: Entry(
        title="Network card firmware was reset",
        description="The card was reset, by its driver or by a person, or waits for a reset.",
        effect="Its ports are away for seconds; RDMA connections are lost.",
        severity=Severity.WARNING,
        scope=_CARD,
        seen=("kernel log", "devlink health"),
        answer="None; ranks report their own end.",
        check=(
            "`dmesg -T | grep -iE 'reset'`: who asked for it",
            "`ip link show` and `rdma link`: every port is up again",
        ),
        references=(DEVLINK_HEALTH, linux("drivers/net/ethernet/broadcom/bnxt/bnxt.c")),
    ),
    FaultClass.NIC_TX_TIMEOUT: Entry(
        title="Network card transmit time-out",
        description="Packets given to the card were not sent in time; the kernel resets the queue.",
        effect="Traffic of the port stops for seconds.",
        severity=Severity.ERROR,
        scope=_LINK,
        seen=("kernel log", "devlink health"),
        answer="Tell people; reset the card, and take the node out when it repeats.",
        check=(
            '`dmesg -T | grep -iE "transmit queue|TX timeout"`: which queue, how often',
            "`devlink health diagnose pci/ADDRESS reporter tx`",
            "Pause frames: `ethtool -S PORT | grep -i pause`; a storm comes from the far end",
        ),
        references=(DEVLINK_HEALTH, linux("net/sched/sch_generic.c"), MLX5),
    ),
    FaultClass.NIC_QUEUE_ERROR: Entry(
        title="Network card queue error",
        description="The driver could not create, start or repair a queue of the card.",
        effect="Some traffic of the port is lost or slow.",
        severity=Severity.ERROR,
        scope=_LINK,
        seen=("kernel log",),
        answer="Tell people; reset the card, and take the node out when it repeats.",
        check=(
            "`dmesg -T | grep -i queue`: the command and its error",
            "`devlink health show` and `ethtool -S PORT`",
        ),
        references=(linux("drivers/net/ethernet/pensando/ionic/ionic_lif.c"), DEVLINK_HEALTH),
    ),
    FaultClass.NIC_RDMA_ERROR: Entry(
        title="RDMA errors",
        description=(
            "RDMA operations fail: retries that run out, local errors, commands that the card "
            "refuses. The driver's counters say which kind."
        ),
        effect="A connection between two ranks ends, and the job with it.",
        severity=Severity.ERROR,
        scope=_LINK,
        seen=("hw_counters of /sys/class/infiniband", "kernel log"),
        answer="By the kind of counter and its rate; the first port to fail names the suspect.",
        check=(
            "`rdma statistic show link`: which counters grow",
            "The other end: an error here is often a fault there",
            "`rdma link` and `ibv_devinfo`: state of the port",
        ),
        references=(
            INFINIBAND_SYSFS,
            linux("drivers/infiniband/hw/bnxt_re/qplib_rcfw.c"),
            linux("drivers/infiniband/hw/ionic/ionic_admin.c"),
        ),
    ),
    FaultClass.NIC_RDMA_DEGRADED: Entry(
        title="RDMA degraded",
        description=(
            "RDMA works, with more retries, reordering or lost packets than it should. Congestion "
            "marks and pauses alone are no fault; a storm of them is."
        ),
        effect="Collectives are slow.",
        severity=Severity.WARNING,
        scope=_LINK,
        seen=("hw_counters of /sys/class/infiniband", "port counters"),
        answer="Tell people; compare with the port's neighbours and the switch.",
        check=(
            "`rdma statistic show link` twice, ten seconds apart",
            "`ethtool -S PORT | grep -iE 'pause|discard|ecn|cnp'`",
            "The speed and width of the port against its neighbours: `aegis nodes show NODE`",
        ),
        references=(INFINIBAND_SYSFS, RELIABILITY),
    ),
    FaultClass.NIC_PCIE_LOST: Entry(
        title="Network card lost from the bus",
        description="The card does not answer on PCIe any more.",
        effect="All its ports are gone.",
        severity=Severity.FATAL,
        scope=_CARD,
        seen=("kernel log",),
        answer="Move the ranks off, reboot, look at the slot.",
        check=(
            "`lspci -vv -s ADDRESS`: `rev ff` means that it does not answer",
            "PCIe errors of the port above it: `aegis incidents --node NODE`",
        ),
        references=(kernel_page("PCI error recovery", "PCI/pci-error-recovery.html"),),
    ),
    FaultClass.NIC_REMOVED: Entry(
        title="Network card gone",
        description="A port that was there is gone for several readings: driver or card removed.",
        effect="Ranks that used it end.",
        severity=Severity.FATAL,
        scope=_CARD,
        seen=("netlink and sysfs, gone for three readings", "kernel log"),
        answer="Move the ranks off; find out whether a person did it.",
        check=(
            "`lspci | grep -iE 'ethernet|infiniband'`: whether the bus still sees it",
            "`journalctl -b | grep -iE 'modprobe|rmmod|udev'`: a driver that was unloaded",
        ),
        references=(NET_SYSFS,),
    ),
    FaultClass.NIC_MODULE_UNPLUGGED: Entry(
        title="Network module unplugged",
        description="Cable or transceiver was taken out of the port, or makes no contact.",
        effect="The link is down.",
        severity=Severity.ERROR,
        scope=_LINK,
        seen=("kernel log",),
        answer="For the site: plug the right cable in.",
        check=(
            "`ethtool -m PORT`: whether a module is seen",
            "Who works in the rack now",
        ),
        references=(_MLX5_EVENTS,),
    ),
    FaultClass.NIC_MODULE_TEMPERATURE: Entry(
        title="Network module too hot",
        description="The transceiver reports a temperature above its limit.",
        effect="Errors on the wire now, a dark port soon.",
        severity=Severity.WARNING,
        scope=_LINK,
        seen=("kernel log",),
        answer="For the site: air flow and cages, then the module.",
        check=(
            "`ethtool -m PORT | grep -i temp`: against its alarm level",
            "Neighbours in the rack: one module, or the air",
        ),
        references=(_MLX5_EVENTS,),
    ),
    FaultClass.NIC_POWER_INSUFFICIENT: Entry(
        title="Network card lacks power",
        description="The slot offers less power than the card needs.",
        effect="The card runs slower, or without its optics.",
        severity=Severity.WARNING,
        scope=_CARD,
        seen=("kernel log",),
        answer="For the site: the right slot, its power cable, the BIOS setting of the slot.",
        check=(
            '`dmesg -T | grep -i "power on the PCIe slot"`: how much there is',
            "Whether its neighbours on the same board say the same",
        ),
        references=(_MLX5_EVENTS,),
    ),
}
