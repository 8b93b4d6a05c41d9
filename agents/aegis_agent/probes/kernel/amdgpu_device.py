"""amdgpu as a device: its firmware, its start, its loss, its heat; and what programs did wrong."""

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Pattern

_POWER = r"(?:[fs]?ppt\w*|spl|ppm|tdc\w*|edc\w*|fit|apcc|pcc|power\w*|current\w*)"
_NAME = r" +(?:(?!pid \d)(?P<{0}>.*?) +)?pid (?P<{1}>\d+)"
_PROCESS = (
    r"(?:,? for process"
    + _NAME.format("process", "pid")
    + r"(?: thread"
    + _NAME.format("thread", "thread_pid")
    + r")?)?"
)

# fmt: off
PATTERNS = (
    Pattern(F.GPU_LOST, FATAL, "bus", r"\b(?:lost|fallen|fell|dropped|gone) (?:from|off|of) (?:the )?(?:pcie? )?bus\b",
            "amdgpu 0000:0f:00.0: amdgpu: device lost from bus!", "amdgpu_device.c"),
    Pattern(F.GPU_LOST, FATAL, "inaccessible", r"device inaccessible|config space inaccessible",
            "amdgpu 0000:0f:00.0: Unable to change power state from D3cold to D0, device inaccessible", "pci.c"),
    Pattern(F.GPU_LOST, FATAL, "pci error", r"pci error: detected callback[,!]* state\((?P<state>3)\)",
            "[drm:amdgpu_pci_error_detected [amdgpu]] PCI error: detected callback, state(3)!!", "amdgpu_device.c"),
    Pattern(F.PCIE_AER_FATAL, FATAL, "pci error", r"pci error: detected callback[,!]* state\((?P<state>2)\)",
            "amdgpu 0000:0f:00.0: amdgpu: PCI error: detected callback!!, state(2)", "amdgpu_device.c"),
    Pattern(F.PCIE_AER_NONFATAL, ERROR, "pci error", r"pci error: detected callback",
            "amdgpu 0000:0f:00.0: amdgpu: PCI error: detected callback, state(1)!!", "amdgpu_device.c"),
    Pattern(F.PCIE_LINK_RESET, WARNING, "pci error", r"pci error: slot reset callback",
            "amdgpu 0000:0f:00.0: amdgpu: PCI error: slot reset callback!!", "amdgpu_device.c"),

    Pattern(None, INFO, "throttled", r"gpu is throttled\b[^.]*\. (?:" + _POWER + r"(?:[ ,.|]|and)*)+$",
            "amdgpu 0000:0f:00.0: amdgpu: WARN: GPU is throttled, expect performance decrease. PPT.", "smu_v13_0_6_ppt.c"),
    Pattern(F.GPU_THERMAL_THROTTLE, WARNING, "throttl", r"gpu is throttled\b[^.]*(?:\. (?P<reason>.*?)\.?$)?|thermal throttling (?:temperature )?reached[^.]*(?:\. (?P<sensor>.*?)\.?$)?",
            "amdgpu 0000:0f:00.0: amdgpu: WARN: GPU thermal throttling temperature reached, expect performance decrease. HBM.", "arcturus_ppt.c, aldebaran_ppt.c"),
    Pattern(F.GPU_THERMAL_THROTTLE, ERROR, "temperature", r"over[- ]?temperature range|critical temperature fault|gpu over[- ]?temperature|(?:exceed\w*|above|over) .*temperature (?:limit|threshold)",
            "amdgpu 0000:0f:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!", "smu_v11_0.c, smu_v13_0.c"),
    Pattern(F.GPU_THERMAL_THROTTLE, ERROR, "ctf", r"\b(?P<trip>(?:sw|hw) ctf)\b|\bctf\b.*detected",
            "amdgpu 0000:0f:00.0: amdgpu: ERROR: System is going to shutdown due to GPU SW CTF!", "smu_v13_0.c"),

    Pattern(F.GPU_SHADER_ILLEGAL_OPCODE, WARNING, "illegal", r"illegal (?P<what>op ?code|instruction|register access) in command stream",
            "[drm:gfx_v9_0_priv_inst_irq [amdgpu]] *ERROR* Illegal instruction in command stream", "gfx_v9_0.c … gfx_v12_0.c"),
    Pattern(F.GPU_SHADER_ILLEGAL_OPCODE, WARNING, "sq_intr: error", r"sq_intr: error\b.*\b(?:err_)?type (?P<type>1)\b",
            "amdgpu: sq_intr: error, detail 0x00000000, type 1, sh 0, priv 1, wave_id 0, simd_id 0, wgp_id 0", "kfd_int_process_v10.c"),
    Pattern(F.GPU_VM_FAULT, WARNING, "sq_intr: error", r"sq_intr: error\b.*\b(?:err_)?type (?P<type>2)\b",
            "amdgpu: sq_intr: error, detail 0x00000000, type 2, sh 1, priv 1, wave_id 0, simd_id 0, wgp_id 5", "kfd_int_process_v11.c"),
    Pattern(F.GPU_VM_FAULT, WARNING, "page fault", r"^(?:\[(?P<hub>[\w. ]+)\] )?(?:(?P<kind>(?:no-)?retry|vmc) )?page fault \((?:src_id: ?(?P<source>\d+) )?(?:ring: ?(?P<ring>\d+) )?(?:vmid: ?(?P<vmid>\d+))?"
            r"(?: pas_?id: ?(?P<pasid>\d+))?" + _PROCESS,
            "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] retry page fault (src_id:0 ring:0 vmid:3 pasid:32769, for process python3 pid 4711 thread python3 pid 4711)",
            "gmc_v9_0.c, gmc_v10_0.c"),
    Pattern(F.GPU_VM_FAULT, WARNING, "from ", r"^(?:in page starting )?at (?:page|address) (?P<address>0x[0-9a-f]+) from (?:ih )?(?:client )?(?P<client>\w+)",
            "amdgpu 0000:c1:00.0: amdgpu:   in page starting at address 0x00007f2e00000000 from IH client 0x1b (UTCL2)", "gmc_v9_0.c"),
    Pattern(F.GPU_VM_FAULT, WARNING, "fault", r"gpu fault detected: (?P<source>\d+) (?P<data>0x[0-9a-f]+)" + _PROCESS + r"|\bvm fault \((?P<status>0x\w+), vmid (?P<vmid>\d+)(?:, pasid (?P<pasid>\d+))?\)",
            "amdgpu 0000:c1:00.0: GPU fault detected: 146 0x0000480c for process glmark2 pid 1201 thread glmark2:cs0 pid 1202", "gmc_v8_0.c"),
    Pattern(F.GPU_IPC_FAILED, WARNING, "ipc", r"(?:fail\w* to|cannot|can't|unable to) (?:import|export|open|attach|map|get|create) (?:\w+ )*ipc\b|\bipc\b.*\b(?:fail\w*|invalid)\b",
            "amdgpu: Failed to export IPC handle", "kfd_chardev.c"),
    Pattern(F.GPU_COREDUMP, INFO, "coredump", r"coredump (?:file )?(?:has been |was )?created|devcoredump/data",
            "[drm] AMDGPU device coredump file has been created", "amdgpu_dev_coredump.c"),

    Pattern(None, INFO, "optional", r"\boptional\b",
            "amdgpu 0000:0f:00.0: amdgpu: RAP: optional rap ta ucode is not available", "amdgpu_psp.c"),
    Pattern(None, INFO, "psp ", r"psp (?:gfx )?command (?!load_ip_fw|setup_tmr|load_toc|load_asd|autoload)\S+",
            "amdgpu 0000:0f:00.0: amdgpu: psp gfx command INVOKE_CMD(0x3) failed and response status is (0x4)", "amdgpu_psp.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "gpu init", r"fatal error during gpu init",
            "amdgpu 0000:0f:00.0: amdgpu: Fatal error during GPU init", "amdgpu_kms.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "init failed", r"amdgpu_device_ip_\w*init failed|\b(?:ip|hw|sw|gpu|asic|kfd) init failed",
            "amdgpu 0000:0f:00.0: amdgpu: amdgpu_device_ip_init failed", "amdgpu_device.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "ip block", r"(?P<phase>suspend|[hs]w_fini|early_fini|late_fini|wait_for_idle) of ip block <(?P<block>\w+)> failed(?: (?P<status>-?\d+))?",
            "amdgpu 0000:0f:00.0: amdgpu: suspend of IP block <mes_v11_0> failed -110", "amdgpu_device.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "ip block", r"(?P<phase>\w+) of ip block <(?P<block>\w+)> failed(?: (?P<status>-?\d+))?",
            "[drm:amdgpu_device_init [amdgpu]] *ERROR* hw_init of IP block <psp> failed -22", "amdgpu_device.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "psp", r"\bpsp\b.*\b(?:fail(?:ed|ure)?|timed out|time ?out|not working)\b|\bfail\w* to (?:\w+ ){0,4}psp\b",
            "[drm:psp_hw_start [amdgpu]] *ERROR* PSP load tmr failed!", "amdgpu_psp.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "probe", r"\bprobe (?:of (?P<address>[0-9a-f:.]+)|with driver amdgpu) failed with error (?P<status>-\d+)",
            "amdgpu 0000:0f:00.0: probe with driver amdgpu failed with error -22", "dd.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "failed to", r"\bfailed to (?:load|init(?:ialize)?|start) (?:[\w.-]+ ){0,3}?[\"<]?(?:firmware|ucode|microcode|rlc|smc|smu|gpu|gpu_info|asic|atom\w*|ip block|[\w/]+\.bin)\b",
            'amdgpu 0000:0f:00.0: amdgpu: gfx10: Failed to load firmware "amdgpu/navi10_mec.bin"', "gfx_v10_0.c, amdgpu_ucode.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "firmware", r"\b(?P<firmware>smu|smc|rlc|sdma|vcn|mes) firmware (?:load(?:ing)? )?failed",
            "amdgpu 0000:0f:00.0: amdgpu: SMU firmware loading failed", "amdgpu_smu.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "giving up", r"not responding, giving up",
            "[drm:vcn_v4_0_start [amdgpu]] *ERROR* VCN decode not responding, giving up!!!", "vcn_v4_0.c, uvd_v7_0.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "bios", r"unable to locate a bios rom|atombios stuck|gpu post error",
            "amdgpu 0000:0f:00.0: amdgpu: Unable to locate a BIOS ROM", "amdgpu_device.c, atom.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "not added", r"device \S+ not added due to errors",
            "kfd kfd: amdgpu: device 1002:74a1 NOT added due to errors", "kfd_device.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "init", r"^(?!.*\b(?:parser|hdcp|freesync|audio|acp|backlight|debugfs|fbdev|hwmon|sysfs)\b)(?:.*\b(?:\w+_)?init(?:iali[sz]e|iali[sz]ation)?\b:? (?:has )?(?:fail\w*|timed? ?out)|.*\bfail\w* to (?:\w+ ){0,3}init(?:iali[sz]e)?\b)",
            "amdgpu 0000:0f:00.0: amdgpu: amdgpu_discovery_init failed", "amdgpu_discovery.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "discovery", r"\b(?:fail\w* to \w+|invalid) ip discovery (?:binary|table)",
            "amdgpu 0000:0f:00.0: amdgpu: failed to read ip discovery binary from vram", "amdgpu_discovery.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "time", r"\b(?:autoload|bootloader)\b.*\b(?:time ?out|timed out)|\b(?:time ?out|timed out) waiting for (?:\w+ )*(?:autoload|bootloader|bootup)",
            "amdgpu 0000:0f:00.0: amdgpu: rlc autoload: gc ucode autoload timeout", "imu_v11_0.c, gfx_v11_0.c"),
    Pattern(F.GPU_INIT_FAILED, FATAL, "enable failed", r"\b(?P<queues>kcq|kgq|kiq|mes) enable failed",
            "[drm:amdgpu_gfx_enable_kcq [amdgpu]] *ERROR* KCQ enable failed", "amdgpu_gfx.c"),

    Pattern(F.GPU_FIRMWARE_SMU, ERROR, "smu: ", r"\bsmu: i'm not done with your (?:previous|current) command",
            "amdgpu 0000:0f:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000006 SMN_C2PMSG_82:0x00000000", "smu_cmn.c"),
    Pattern(F.GPU_FIRMWARE_SMU, ERROR, "smu: ", r"\bsmu: (?:no response|response: ?(?P<response>0x[0-9a-f]+)).*?(?: for)?(?: index: ?(?P<index>\d+))?(?: param: ?(?P<parameter>\w+))?(?: message: ?(?P<message>\w+))?\??$",
            "amdgpu 0000:0f:00.0: amdgpu: SMU: response:0xFFFFFFFF for index:18 param:0x00000005 message:TransferTableSmu2Dram?", "smu_cmn.c"),
    Pattern(F.GPU_FIRMWARE_SMU, WARNING, "smu: ", r"\bsmu: (?:unknown command|valid command, bad prerequisites|i'm (?:very busy|debugging)|bad \w+|fail\w*|time ?out)\b.*?(?: index: ?(?P<index>\d+))?(?: param: ?(?P<parameter>\w+))?(?: message: ?(?P<message>\w+))?\??$",
            "amdgpu 0000:0f:00.0: amdgpu: SMU: unknown command: index:9 param:0x00000000 message:GetMinGfxclkFrequency", "smu_cmn.c"),
    Pattern(F.GPU_FIRMWARE_SMU, ERROR, "message", r"last message was failed ret is (?P<response>\w+)",
            "amdgpu: [powerplay] last message was failed ret is 65535", "smu7_smumgr.c"),
    Pattern(F.GPU_FIRMWARE_SMU, ERROR, "send message", r"\bfailed (?:to )?send message:? (?P<message>\w+)(?:.*?(?:response|ret is|ret)[ :=]+(?P<response>\w+))?",
            "amdgpu: [powerplay] failed to send message 306 ret is 254", "smu9_smumgr.c, vega20_smumgr.c"),
    Pattern(F.GPU_FIRMWARE_SMU, ERROR, "msg issuing", r"msg issuing (?:\w+-?\w* )?failed|smu may be not in the right state",
            "amdgpu 0000:0f:00.0: amdgpu: Msg issuing pre-check failed(0xffffffff) and SMU may be not in the right state!", "smu_cmn.c"),
    Pattern(F.GPU_FIRMWARE_SMU, WARNING, "attempt to", r"^(?:\[\w+\] )?attempt to [\w ]+ failed",
            "amdgpu: [powerplay] [GetCurrentClkFreq] Attempt to get Current Frequency Failed!", "vega20_hwmgr.c"),
    Pattern(F.GPU_FIRMWARE_SMU, WARNING, "fail", r"\bfail\w* to (?:disallow|allow|enable|disable|export|get|set|retrieve|update|upload|power|setup|override|run|read|transfer|force|populate)\b.*"
            r"\b(?:smu|smc|gfxoff|[dc]f[ _]?c?[ _]?state|dpm|pptable|metrics|clocks?|clk|freq\w*|power limit|ppfeatures?|performance level|watermarks?|driverdramaddr)\b",
            "amdgpu 0000:0f:00.0: amdgpu: Failed to export SMU metrics table!", "amdgpu_smu.c, smu_cmn.c"),
)
# fmt: on
