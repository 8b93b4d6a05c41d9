"""amdgpu at a standstill and in reset: rings, schedulers, queues, the states of a reset.

"GPU reset succeeded, trying to resume" is half-way: "GPU reset(2) succeeded!" is the end.
"""

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Pattern

_STATUS = r"(?:.*?(?P<status>-\d+))?"

# fmt: off
PATTERNS = (
    Pattern(F.GPU_MEMORY_VRAM_LOST, ERROR, "vram is lost", r"vram is lost",
            "[drm] VRAM is lost due to GPU reset!", "amdgpu_device.c"),

    Pattern(F.GPU_RESET_BEGIN, WARNING, "gpu re", r"\bgpu (?:reset|recovery) (?:begins?|begun|start(?:s|ed|ing)?)\b(?:!?\.? *source: *(?P<source>\w+))?",
            "amdgpu 0000:2b:00.0: amdgpu: GPU reset begin!. Source:  4", "amdgpu_device.c"),
    Pattern(F.GPU_RESET_PROGRESS, INFO, "gpu reset", r"gpu reset (?:succeeded|success\w*),? (?:trying to resume|resuming)",
            "amdgpu 0000:2b:00.0: amdgpu: GPU reset succeeded, trying to resume", "amdgpu_device.c"),
    Pattern(F.GPU_RESET_SUCCEEDED, WARNING, "gpu re", r"gpu (?:reset|recovery) ?(?:\((?P<attempt>\d+)\))?(?: has)? succe(?:eded|ss\w*)|gpu reset end with ret ?= ?0\b",
            "amdgpu 0000:2b:00.0: amdgpu: GPU reset(7) succeeded!", "amdgpu_device.c"),
    Pattern(F.GPU_RESET_FAILED, FATAL, "gpu re", r"gpu (?:reset|recovery) ?(?:\((?P<attempt>\d+)\))?(?: has)? fail(?:ed|ure)?" + _STATUS,
            "amdgpu 0000:2b:00.0: amdgpu: GPU Recovery Failed: -19", "amdgpu_device.c"),
    Pattern(F.GPU_RESET_FAILED, FATAL, "gpu reset end", r"gpu reset end with ret ?= ?(?P<status>-?[1-9]\d*)",
            "amdgpu 0000:2b:00.0: amdgpu: GPU reset end with ret = -62", "amdgpu_device.c"),
    Pattern(F.GPU_RESET_FAILED, FATAL, "reset", r"\b(?:asic|mode-?\d|baco|pci(?: config)?|pre asic|xgmi) reset\b.*\bfail(?:ed|ure)?" + _STATUS,
            "amdgpu 0000:2b:00.0: amdgpu: ASIC reset failed with error, -110 for drm dev, card1", "amdgpu_device.c"),
    Pattern(F.GPU_RESET_FAILED, FATAL, "wedged", r"device wedged, (?!but recovered)",
            "amdgpu 0000:2b:00.0: [drm] device wedged, needs recovery", "drm_drv.c"),
    Pattern(F.GPU_RESET_PROGRESS, INFO, "reset", r"^(?:gpu )?(?:psp |smu )?(?P<method>mode-?\d|baco|bamaco|pci(?: config)?|legacy|link|hotplug) reset\W*$",
            "amdgpu 0000:2b:00.0: amdgpu: GPU smu mode1 reset", "amdgpu_device.c, amdgpu_dpm.c"),
    Pattern(F.GPU_RESET_PROGRESS, INFO, "recover vram", r"recover vram(?: bo)? from shadow (?P<phase>\w+)",
            "amdgpu 0000:2b:00.0: amdgpu: recover vram bo from shadow start", "amdgpu_device.c"),

    Pattern(F.GPU_RING_TIMEOUT, WARNING, "soft recovered", r"ring (?P<ring>\S+) timeout,? but (?P<outcome>soft recovered)",
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, but soft recovered", "amdgpu_job.c"),
    Pattern(F.GPU_RING_TIMEOUT, ERROR, "ring ", r"\bring (?P<ring>[\w.]+) (?:timeout|timed out|is stuck|hung)\b(?:, signal+ed seq ?= ?(?P<signaled>\d+), emitted seq ?= ?(?P<emitted>\d+))?",
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.2.0 timeout, signaled seq=80, emitted seq=82", "amdgpu_job.c"),
    Pattern(F.GPU_RING_TIMEOUT, ERROR, "fences timed out", r"waiting for fences timed out",
            "[drm:amdgpu_dm_atomic_commit_tail [amdgpu]] *ERROR* Waiting for fences timed out!", "amdgpu_dm.c"),

    # a test of a ring belongs to bringing the GPU up, whichever ring it is
    Pattern(F.GPU_INIT_FAILED, FATAL, "test failed", r"\b(?:ring (?P<ring>\S+)|ib|ib ring) test failed(?: on (?P<ring__2>[\w.]+))?(?: \((?P<status>-?\d+)\))?",
            "[drm:amdgpu_ring_test_helper [amdgpu]] *ERROR* ring kiq_0.2.1.0 test failed (-110)", "amdgpu_ring.c, amdgpu_ib.c"),

    Pattern(F.GPU_QUEUE_RESET, WARNING, "reset", r"\bring (?P<ring>[\w.]+) reset (?:succe\w+|done|complete\w*)|\bstarting (?P<ring__2>[\w.]+) ring reset",
            "amdgpu 0000:2b:00.0: amdgpu: Ring sdma1.0 reset success", "amdgpu_job.c, amdgpu_ring.c"),
    Pattern(F.GPU_QUEUE_RESET, WARNING, "wedged", r"device wedged, but recovered",
            "amdgpu 0000:2b:00.0: amdgpu: [drm] device wedged, but recovered through reset", "drm_drv.c"),
    Pattern(F.GPU_QUEUE_RESET, WARNING, "reset", r"\bqueue(?: id)? (?P<queue>\w+) (?:at|of) pasid (?P<pasid>\w+) (?:is|was|has been) reset"
            r"|\b(?:queue|pipe|engine)\b.*\breset\b.*\bsucce",
            "amdgpu: queue id 0x3 at pasid 32778 is reset", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_QUEUE_RESET_FAILED, ERROR, "reset", r"\bring (?P<ring>[\w.]+) reset (?:has )?fail\w*|\b(?:queue|pipe|engine) reset\b.*\bfail"
            r"|\bfail\w* to reset (?:the )?(?!legacy|mes)(?:\w+ ){0,2}(?:queue|pipe|ring|engine)\b",
            "amdgpu 0000:2b:00.0: amdgpu: Ring comp_1.3.1 reset failure", "amdgpu_job.c"),
    Pattern(F.GPU_QUEUE_RESET_FAILED, ERROR, "hqd", r"fail\w* to wait on hqd deacti\w+",
            "amdgpu 0000:2b:00.0: amdgpu: fail to wait on hqd deactive", "gfx_v9_0.c, gfx_v11_0.c"),

    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "mes", r"\bmes(?:\((?P<pipe>[\d, ]+)\))? failed to respon(?:d to|se) (?:misc )?msg ?= ?(?P<message>\w+)",
            "[drm:mes_v11_0_submit_pkt_and_poll_completion [amdgpu]] *ERROR* MES failed to response msg=14", "mes_v11_0.c, mes_v12_0.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "mes", r"\bmes\b.*\b(?:unrecoverable|hang|hung|timed out|timeout|not respond\w*|ring buffer is full|no response)\b",
            "amdgpu 0000:2b:00.0: amdgpu: MES ring buffer is full.", "mes_v12_0.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "fail", r"\bfail\w* to (?P<action>add|remove|suspend|resume|reset|unmap|map|evict|restore|quiesce|preempt|destroy|drain|dequeue) "
            r"(?:\w+ ){0,4}?(?:queues?|gangs?|kfd|process)\b(?: (?P<queue>\d+)\b)?(?:.*doorbell(?:_id)? ?[=:] ?(?P<doorbell>\w+))?",
            "amdgpu: failed to remove hardware queue from MES, doorbell=0x1202", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "ing ", r"\b(?:suspend|resum|evict|restor|unmapp|preempt)ing (?:\w+ ){0,3}queues? failed",
            "amdgpu 0000:2b:00.0: amdgpu: Suspending all queues failed", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "preempt", r"preemption (?:has )?(?:failed|time ?out|timed out)(?:.*doorbell_id: ?(?P<doorbell>\w+))?|unsuccessful queues? preemption",
            "amdgpu: cp queue preemption time out.", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "qcm fence", r"qcm fence wait loop time",
            "amdgpu: qcm fence wait loop timeout expired", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "cp might", r"cp might be in an unrecoverable state",
            "kfd kfd: amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "hws", r"\bhws\b.*\b(?:hang|hung|timed? ?out|not respond\w*)\b",
            "amdgpu 0000:2b:00.0: amdgpu: HWS hang detected, reset the GPU", "kfd_device.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "kiq", r"\bkiq\b.*\b(?:time ?out|timed out|fail\w*|errors?|hang|hung|stuck)\b",
            "amdgpu 0000:2b:00.0: amdgpu: wait for kiq fence error: 0.", "gmc_v9_0.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "reg", r"^fail\w* to (?:read|write) reg\b[ :]",
            "amdgpu 0000:2b:00.0: amdgpu: failed to write reg 28b4 wait reg 28c6", "amdgpu_gfx.c, amdgpu_gmc.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "fail", r"\bfail\w* to halt (?P<engine>cp|rlc|sdma|mec)\b|\bpasid (?P<pasid>\w+) destroy queue (?P<queue>\d+) failed",
            "[drm:gfx_v11_0_cp_gfx_enable.isra.0 [amdgpu]] *ERROR* failed to halt cp gfx", "gfx_v11_0.c, kfd_process_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "disable failed", r"\b(?P<queues>kcq|kgq|hiq|kiq) disable failed",
            "[drm:gfx_v10_0_hw_fini [amdgpu]] *ERROR* KGQ disable failed", "gfx_v10_0.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "runlist", r"\brunlist\b.*\bfail\w*|\bfail\w* to \w+ (?:the )?runlist",
            "amdgpu: failed to execute runlist", "kfd_device_queue_manager.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "is hung", r"ip block: ?<?(?P<block>\w+)>? is hung",
            "amdgpu 0000:2b:00.0: amdgpu: IP block:gfx_v11_0 is hung!", "amdgpu_device.c"),
    Pattern(F.GPU_SCHEDULER_HANG, ERROR, "vm flush", r"time ?out waiting for (?:vm flush|sem acquire in vm flush)",
            "amdgpu 0000:2b:00.0: amdgpu: Timeout waiting for VM flush ACK!", "gmc_v9_0.c, gmc_v10_0.c"),
)
# fmt: on
