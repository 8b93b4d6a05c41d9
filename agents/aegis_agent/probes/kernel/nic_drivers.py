"""Network adapters, a table for each family of drivers: ionic, mlx5, bnxt, Intel's.

What every driver prints in much the same words is in `nic.py`. Refused commands that only ask or
set a register ("ACCESS_REG … failed", "hwrm req_type … error") are no faults.
"""

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Pattern

_QP = r"(?:qp|cq|srq|mkey|mr|ah|dct|pd|xrq|psv)"

# fmt: off
IONIC = (
    Pattern(F.NIC_FIRMWARE_STALLED, ERROR, "heartbeat", r"fw heartbeat stalled(?: at (?P<heartbeat>-?\d+))?",
            "ionic 0000:8c:00.0: FW heartbeat stalled at 2952797608", "ionic_dev.c"),
    Pattern(F.NIC_FIRMWARE_RECOVERED, INFO, "heartbeat", r"fw heartbeat restored(?: at (?P<heartbeat>-?\d+))?",
            "ionic 0000:8c:00.0: FW heartbeat restored at 2952797640", "ionic_dev.c"),
    Pattern(F.NIC_FIRMWARE_STALLED, ERROR, "fw stopped", r"fw stopped(?: (?P<status>\w+))?",
            "ionic 0000:8c:00.0: FW stopped 0xf0", "ionic_dev.c"),
    Pattern(F.NIC_FIRMWARE_RECOVERED, INFO, "fw running", r"fw running(?: (?P<status>\w+))?",
            "ionic 0000:8c:00.0: FW running 0xf1", "ionic_dev.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "restart failed", r"fw up: lifs restart failed(?:.*err (?P<status>-?\d+))?",
            "ionic 0000:8c:00.0: FW Up: LIFs restart failed - err -110", "ionic_lif.c"),
    Pattern(F.NIC_FIRMWARE_RECOVERED, INFO, "fw up", r"fw up: lifs restarted",
            "ionic 0000:8c:00.0: FW Up: LIFs restarted", "ionic_lif.c"),
    Pattern(F.NIC_FIRMWARE_STALLED, ERROR, "fw down", r"fw down: (?:stopping lifs|lifs stopped)",
            "ionic 0000:8c:00.0: FW Down: Stopping LIFs", "ionic_lif.c"),
    Pattern(F.NIC_FIRMWARE_RESET, WARNING, "fw up", r"fw up: restarting lifs",
            "ionic 0000:8c:00.0: FW Up: restarting LIFs", "ionic_lif.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "opcode", r"\bopcode (?P<opcode>\w+)(?: \((?P<number>\d+)\))? error (?P<error>\w+)(?: \((?P<status>-?\d+)\))?",
            "ionic 0000:8c:00.0 ionic_2: opcode MODIFY_QP (5) error BAD_STATE (9)", "ionic_admin.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "", r"^(?:admin command timed out, aq (?P<queue>\d+)|wait status (?P<status>-\d+)|admincq event (?P<event>\d+)|bad (?:cqe|idx)\b|admin pos \d+ \(last posted\))",
            "ionic 0000:8c:00.0 ionic_2: admin command timed out, aq 3 after: 2004ms", "ionic_admin.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "ionic_cmd_rdma", r"(?P<command>ionic_cmd_rdma_\w+) \(\d+\)(?: \w+)*?:? (?:failed|error|timeout)\b[:,]?(?: (?P<error>\w+))?",
            "ionic 0000:8c:00.0 enp140s0: IONIC_CMD_RDMA_CREATE_CQ (63) failed: IONIC_RC_ENOSPC (-28)", "ionic_main.c"),
    Pattern(F.NIC_FIRMWARE_STALLED, ERROR, "timeout", r"(?P<command>ionic_cmd_\w+|devcmd_unknown|dev_?cmd \w+) ?\(\d+\) (?:timeout after (?P<seconds>\d+) secs|failed: timeout)",
            "ionic 0000:8c:00.0: DEVCMD IONIC_CMD_LIF_IDENTIFY (20) timeout after 10 secs", "ionic_main.c"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "ionic_cmd_", r"(?P<command>ionic_cmd_(?:q_|lif_|rx_|port_init|init|reset)\w*) ?\(\d+\) (?:failed|error)\b[:,]?(?: (?P<error>\w+))?",
            "ionic 0000:8c:00.0 enp140s0: IONIC_CMD_Q_INIT (40) failed: IONIC_RC_ENOMEM (-12)", "ionic_main.c"),
)

MLX5 = (
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "health compromised", r"device's health compromised",
            "mlx5_core 0000:b5:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count", "mlx5 health.c"),
    Pattern(F.NIC_MODULE_TEMPERATURE, ERROR, "high temp", r"\bsynd (?P<syndrome>0x10): high temp\w+",
            "mlx5_core 0000:b5:00.0: print_health_info:424:(pid 0): synd 0x10: High temperature", "mlx5 health.c"),
    Pattern(None, INFO, "synd 0x0", r"\bsynd 0x0:", "mlx5_core 0000:b5:00.0: print_health_info:424:(pid 0): synd 0x0: unrecognized error", "mlx5 health.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "synd 0x", r"\bsynd (?P<syndrome>0x[0-9a-f]+): (?P<error>.+?)\.?$",
            "mlx5_core 0000:b5:00.0: print_health_info:424:(pid 0): synd 0x1: firmware internal error", "mlx5 health.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, WARNING, "health issue", r"health issue observed, (?P<error>[^,]+), severity\((?P<level>[4-7])\)",
            "mlx5_core 0000:b5:00.0: print_health_info:431:(pid 0): Health issue observed, High temperature, severity(4) WARNING:", "mlx5 health.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "health issue", r"health issue observed, (?P<error>[^,]+)(?:, severity\((?P<level>\d)\))?",
            "mlx5_core 0000:b5:00.0: print_health_info:431:(pid 0): Health issue observed, irisc not responding, severity(2) CRITICAL:", "mlx5 health.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "leak of a command", r"(?P<command>[A-Z_0-9]+)\((?P<opcode>0x[0-9a-f]+)\) timeout\. will cause a leak",
            "mlx5_core 0000:b5:00.0: wait_func:1151:(pid 88): CREATE_EQ(0x301) timeout. Will cause a leak of a command resource", "mlx5 cmd.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "", r"fatal error (?P<error>\d+) detected|\bhandling bad device here|health recovery (?:flow aborted|failed)|nic interface in (?P<state>\w+) state"
            r"|unable to respond to initialization segment|firmware over \d+ ms in (?:pre-)?initializing|unrecoverable hardware error",
            "mlx5_core 0000:b5:00.0: poll_health:789:(pid 0): Fatal error 3 detected", "mlx5 health.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "failed", r"\b(?:mlx5_load_one|mlx5_init_one|mlx5_function_setup|probe_one|init_one|mlx5_recover_device)\b.*\bfailed\b.*?(?P<status>-\d+)?$",
            "mlx5_core 0000:b5:00.0: probe_one:1908:(pid 412): mlx5_init_one failed with error code -110", "mlx5 main.c"),
    Pattern(F.NIC_FIRMWARE_STALLED, WARNING, "waiting for fw", r"waiting for fw(?: pre)?[- ]init\w*",
            "mlx5_core 0000:b5:00.0: wait_fw_init:196:(pid 412): Waiting for FW initialization, timeout abort in 101s (0xffffffff)", "mlx5 main.c"),
    Pattern(F.NIC_FIRMWARE_RECOVERED, INFO, "recover", r"health recovery (?:succeeded|successful|completed)|\bexit, result = \d+, recovered",
            "mlx5_core 0000:b5:00.0: mlx5_health_try_recover:337:(pid 77): health recovery succeeded", "mlx5 health.c"),
    Pattern(F.NIC_FIRMWARE_RESET, WARNING, "reset", r"sync reset (?:now|request|unload|flow)\b|mlx5_error_sw_reset\S* start",
            "mlx5_core 0000:b5:00.0: mlx5_sync_reset_now_event:594:(pid 77): Sync Reset now. Device is going to reset.", "mlx5 fw_reset.c"),

    Pattern(F.NIC_MODULE_TEMPERATURE, WARNING, "high temperature", r"port module event\[error\]: module (?P<module>\d+),.* high temperature|high temperature on sensors?\b:?(?: with bit set)? (?P<sensors>.+)$",
            "mlx5_core 0000:b5:00.0: temp_warn:174:(pid 0): High temperature on sensors with bit set 0 1", "mlx5 events.c"),
    Pattern(F.NIC_POWER_INSUFFICIENT, WARNING, "power", r"port module event\[error\]: module (?P<module>\d+),.* (?:power budget exceeded|insufficient.* power)|detected insufficient power on the pcie slot(?: \((?P<power>[\w.]+)\))?",
            "mlx5_core 0000:b5:00.0: Port module event[error]: module 1, Cable error, Power budget exceeded", "mlx5 events.c"),
    Pattern(F.NIC_MODULE_UNPLUGGED, ERROR, "port module event", r"port module event(?:\[\w+\])?: module (?P<module>\d+), cable (?P<error>unplugged|disabled|error(?:, .+?)?)\.?$",
            "mlx5_core 0000:b5:00.0: Port module event[error]: module 0, Cable error, Bad or shorted cable/module", "mlx5 events.c"),

    Pattern(F.NIC_QUEUE_ERROR, ERROR, "rx timeout", r"rx timeout (?:detected )?on channel:? ?(?P<channel>\d+)?|rx timeout detected",
            "mlx5_core 0000:b5:00.0 enp181s0f0np0: RX timeout on channel: 3, ICOSQ: 0x2b, RQ: 0x31, CQ: 0x41c", "mlx5 en/reporter_rx.c"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "cqe", r"\b(?:error|err) cqe on (?P<queue>\w+)[ :]*(?P<number>0x[0-9a-f]+)(?:.*\bsyndrome (?P<syndrome>0x[0-9a-f]+))?(?:.*vendor syndrome (?P<vendor_syndrome>0x[0-9a-f]+))?",
            "mlx5_core 0000:b5:00.0 enp181s0f0np0: Error cqe on cqn 0x41c, ci 0x1a, sqn 0x30, opcode 0xd, syndrome 0x2, vendor syndrome 0x68", "mlx5 en/txrx.h"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "cq error", r"\bcq error on cqn (?P<number>0x[0-9a-f]+), syndrome (?P<syndrome>0x[0-9a-f]+)",
            "mlx5_core 0000:b5:00.0: cq_err_event_notifier:517:(pid 0): CQ error on CQN 0x41c, syndrome 0x1", "mlx5 eq.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "cqe", r"dump(?: error|_)cqe",
            "infiniband mlx5_4: dump_cqe:272:(pid 0): dump error cqe", "mlx5_ib cq.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "qp ", r"\bqp (?P<queue>\d+) error: (?P<error>.+?)(?: \((?P<syndrome>[0-9a-fx ]+)\))?$",
            "infiniband mlx5_4: mlx5_ib_qp_err_event:410:(pid 0): QP 1093 error: local access violation error (0x1 0x0 0x68)", "mlx5_ib qp.c"),
    Pattern(F.NIC_RDMA_ERROR, WARNING, "failed, status", r"\b(?P<command>(?:create|modify|destroy|rst2init|init2rtr|rtr2rts|2rst|2err|arm)_?" + _QP + r"?)\(0x[0-9a-f]+\).* failed, status (?P<error>[^,(]+)\((?P<status>0x[0-9a-f]+)\)(?:, syndrome \((?P<syndrome>0x[0-9a-f]+)\))?",
            "mlx5_core 0000:b5:00.0: mlx5_cmd_out_err:808:(pid 9120): CREATE_MKEY(0x200) op_mod(0x0) failed, status bad resource state(0x9), syndrome (0x5623aa), err(-22)",
            "mlx5 cmd.c"),
)

BNXT = (
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "firmware", r"(?:firmware (?P<kind>fatal) reset event|(?<![-\w])(?P<kind__2>fatal) firmware reset event|detected firmware fatal condition|firmware fatal error|abandoning msg .* due to firmware status: ?(?P<status>0x[0-9a-f]+))",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Fatal firmware reset event, data1: 0x1, data2: 0x90002, min wait 2000 ms, max wait 14000 ms", "bnxt.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "firmware", r"firmware (?:not responding|is not responding)(?:, status: ?(?P<status>0x[0-9a-f]+))?|firmware reset (?:request timed out|aborted|timed? ?out|failed)|firmware is (?:stuck|dead)",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Firmware not responding, status: 0x8000", "bnxt.c"),
    Pattern(F.NIC_FIRMWARE_RESET, WARNING, "reset", r"(?:firmware (?P<kind>[\w-]+) reset event|(?P<kind__2>[\w-]+) firmware reset event|received reset_notify)|reload driver to complete reset|firmware reset recovery",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Non-fatal firmware reset event, data1: 0x0, data2: 0x80001, min wait 2000 ms, max wait 14000 ms", "bnxt.c"),
    Pattern(F.NIC_FIRMWARE_STALLED, ERROR, "", r"error \(timeout: ?(?P<waited>\d+)\) msg \{(?P<message>[^}]*)\}|\bfw stall detected|cmdq\[(?P<command>\w+)\]=(?P<opcode>\w+) (?:waited .*|timed ?out)\b|firmware heartbeat (?:lost|stopped|missed|stalled)",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Error (timeout: 500015) msg {0x41 0x1e2} len:0", "bnxt_hwrm.c, qplib_rcfw.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "cmdq[", r"cmdq\[(?P<command>\w+)\]=(?P<opcode>\w+) (?:status (?P<status>0x[1-9a-f]\w*)|(?P<error>send failed|failed\b.*))",
            "bnxt_en 0000:3b:00.0: QPLIB: cmdq[0x71]=0x3 send failed", "qplib_rcfw.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "qplib", r"\bqplib: .*\b(?:fail\w*|timed? ?out|error|invalid)\b",
            "bnxt_en 0000:3b:00.0: QPLIB: FP: CQ Processed Cut Error", "qplib_fp.c"),
    Pattern(F.NIC_RDMA_ERROR, ERROR, "hw ", r"\bfailed to (?P<action>\w+) hw (?P<object>\w+)",
            "bnxt_en 0000:3b:00.0 rocep59s0f0: Failed to create HW CQ", "bnxt_re ib_verbs.c"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "hwrm", r"hwrm[_ ]ring[_ ](?P<action>alloc|free)\w*(?: \w+)* fail\w*|hwrm_ring_\w+ type \d+ failed",
            "bnxt_en 0000:3b:00.0 ens3f0np0: hwrm_ring_alloc type 2 failed. rc:fffffff0 err:0", "bnxt.c"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "", r"nic open fail\b|(?:mmio )?doorbells? dropped|\bunexpected completion|\bcompletion (?:mismatch|error)|\brx buffer error",
            "bnxt_en 0000:3b:00.0 ens3f0np0: One or more MMIO doorbells dropped by the device!", "bnxt.c"),
    Pattern(F.NIC_MODULE_TEMPERATURE, WARNING, "temperature", r"chip temperature \((?P<temperature>[^)]+)\) crossed|temperature .*(?:exceed\w*|crossed|critical|shutdown)",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Chip temperature (107 C) crossed the critical threshold (105 C)", "bnxt.c"),
    Pattern(F.NIC_MODULE_UNPLUGGED, ERROR, "sfp", r"\bsfp\+? module (?:is )?(?P<error>shutdown|removed|power ?down|not present)",
            "bnxt_en 0000:3b:00.0 ens3f0np0: SFP+ module is shutdown", "bnxt.c"),
    Pattern(F.NIC_RDMA_DEGRADED, WARNING, "pause storm", r"pause storm detected",
            "bnxt_en 0000:3b:00.0 ens3f0np0: Pause Storm detected!", "bnxt.c"),
)

INTEL = (
    Pattern(F.NIC_TX_TIMEOUT, ERROR, "hang", r"(?:detected|fake) (?:tx|hardware) (?:unit )?hang\b|\btx hang (?P<hang>\d+)?",
            "ixgbe 0000:04:00.0 eno1: tx hang 3 detected on queue 7, resetting adapter", "ixgbe_main.c, igb_main.c, e1000e netdev.c"),
    Pattern(F.NIC_TX_TIMEOUT, ERROR, "tx_timeout", r"\btx_timeout:? (?:vsi_\w+: ?(?P<vsi>\d+), q (?P<queue>\d+)|recovery level (?P<level>\d+))",
            "ice 0000:16:00.0 ens1f0: tx_timeout: VSI_num: 8, Q 43, NTC: 0x8c, HW_HEAD: 0x90, NTU: 0x91, INT: 0x0", "ice_main.c, i40e_main.c"),
    Pattern(F.NIC_FIRMWARE_FATAL, FATAL, "", r"firmware recovery mode detected|rebuild failed, unload and reload|(?:pf|core|globr?|empr?|corer|adapter|device) reset failed|reset failed to complete|unable to recover|ivalid fw|nvm checksum is not valid",
            "ice 0000:16:00.0: Firmware recovery mode detected. Limiting functionality.", "ice_main.c, i40e_main.c"),
    Pattern(F.NIC_FIRMWARE_STALLED, ERROR, "", r"\b(?P<queue>a[rs]q) (?:critical error|vf error|overflow error) detected|control queue error|admin queue timeout|fw (?:is )?not responding",
            "i40e 0000:3d:00.0: ARQ Critical Error detected", "i40e_main.c, ice_main.c"),
    Pattern(F.NIC_FIRMWARE_RESET, WARNING, "reset", r"^(?:\w+: )?reset adapter\b|(?P<kind>global|core|emp|pf|hardware) reset (?:detected|requested|event|initiated)|\b(?P<kind__2>globr|corer|empr) (?:requested|detected)",
            "igb 0000:02:00.0 eno2: Reset adapter", "igb_main.c, ice_main.c, i40e_main.c"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "malicious", r"malicious driver detection event (?P<event>\w+) (?:by|on) (?P<direction>tx|rx) queue (?P<queue>\d+)",
            "ice 0000:16:00.0: Malicious Driver Detection event 5 on TX queue 43 PF# 0 VF# 0", "ice_main.c"),
    Pattern(F.NIC_QUEUE_ERROR, ERROR, "hmc error", r"\bhmc error\b", "i40e 0000:3d:00.0: HMC Error detected", "i40e_main.c"),
    Pattern(F.NIC_MODULE_TEMPERATURE, ERROR, "heat", r"(?:stopped|downshifted|shut ?down|disabled)\b.*\bover ?-?heated|has been stopped because it has over heated",
            "ixgbe 0000:04:00.0 eno1: Network adapter has been stopped because it has over heated. Restart the computer. If the problem persists, power off the system and replace the adapter",
            "ixgbe_main.c, igb_main.c"),
    Pattern(F.NIC_POWER_INSUFFICIENT, WARNING, "power", r"module's power requirements exceed",
            "ice 0000:16:00.0: The module's power requirements exceed the device's power supply. Cannot start link", "ice_main.c"),
    Pattern(F.NIC_MODULE_UNPLUGGED, ERROR, "module", r"unsupported (?:sfp\+? )?module type was detected|installed module is incompatible|module is not present|\bmodule (?:was |has been )?removed",
            "ice 0000:16:00.0: The installed module is incompatible with the device's NVM image. Cannot start link", "ice_main.c, ixgbe_main.c"),
)
# fmt: on
