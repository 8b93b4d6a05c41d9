"""amdgpu's reliability reports: ECC, poison, bad pages, links between GPUs.

`{7}` before a message is the number of the event that it belongs to. Counts "in total" are printed
for every die whenever one has an error: those of 0 are no fault.
"""

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Pattern

_WHERE = r"(?:socket:? ?(?P<socket>\d+),? ?)?(?:die:? ?(?P<die>\d+),? ?)?"
_COUNT = _WHERE + r"\b(?P<count>[1-9]\d*) (?:new )?"
_IN_BLOCK = r"(?:.*? in (?:the )?(?P<block>\w+) block)?"
_SEEN = r" (?:hardware )?errors?(?: were| was)? (?:detected|found|reported)" + _IN_BLOCK
_IN_XGMI = r" (?:hardware )?errors?\b.*? in (?:the )?(?P<block>(?:xgmi|wafl)\w*) block"
_COUNTED = (
    r"^.*?\bsubblock (?P<block>\w+).*?\b{0} (?P<count>[1-9]\d*)\b"
    r"|^.*?(?:instance|utc|vml2|atc|bank|hbm).*?\b{0} (?P<count__2>[1-9]\d*)\b"
)


# fmt: off
PATTERNS = (
    Pattern(None, INFO, "0 ", r"(?<![\d.])0 (?:new )?poison\b",
            "amdgpu 0000:c1:00.0: amdgpu: {4} socket: 0, die: 1, 0 poison consumption detected in total in gfx block", "ras_core.c"),
    Pattern(None, INFO, "poison", r"does not support poison|poison consumption enabled|poison (?:mode|propagation)|\bfifo\b",
            "amdgpu 0000:c1:00.0: amdgpu: client 27 does not support poison consumption", "kfd_int_process_v9.c"),

    # errors of the links between GPUs need hands, not a reset, so they are a class of their own
    Pattern(F.GPU_XGMI_ERROR, FATAL, "block", _COUNT + r"(?P<kind>uncorrectable|deferred)" + _IN_XGMI,
            "amdgpu 0000:c1:00.0: amdgpu: {9}socket: 1, die: 0, 1 new uncorrectable hardware errors detected in xgmi_wafl block",
            "amdgpu_ras.c"),
    Pattern(F.GPU_XGMI_ERROR, WARNING, "block", _COUNT + r"(?P<kind>correctable)" + _IN_XGMI,
            "amdgpu 0000:c1:00.0: amdgpu: socket: 1, die: 0 12 correctable hardware errors detected in total in xgmi_wafl block",
            "amdgpu_ras.c"),
    Pattern(F.GPU_XGMI_ERROR, WARNING, "pcs ", r"(?P<link>(?:xgmi|wafl)\w*) pcs (?P<error>[\w ]+?) detected",
            "amdgpu 0000:26:00.0: amdgpu: XGMI PCS CRCErr detected", "amdgpu_xgmi.c"),
    Pattern(F.GPU_XGMI_ERROR, ERROR, "topology failure",
            r"topology failure on device (?P<node>\w+), hive (?P<hive>\w+), ret (?P<status>-?\d+)",
            "amdgpu 0000:26:00.0: amdgpu: XGMI: Set topology failure on device 9a4f00d2, hive 51ab10, ret -22",
            "amdgpu_xgmi.c"),
    Pattern(F.GPU_XGMI_ERROR, ERROR, "xgmi", r"^(?!.*(?:\b(?:0|no) errors?\b|errors?[ :=]+0\b)).*\bxgmi\b.*\b(?:link|lane|node|hive|topology|session)\b.*\b(?:fail\w*|errors?|down|lost)\b"
            r"|\bxgmi: fail\w*|\bfail\w* to \w+ xgmi",
            "amdgpu 0000:26:00.0: amdgpu: XGMI: Failed to get node id", "amdgpu_xgmi.c"),

    Pattern(F.GPU_ECC_UNCORRECTABLE, ERROR, "uncorrectable", _COUNT + "uncorrectable(?:" + _SEEN + r"| hardware errors and \d+ deferred)",
            "amdgpu 0000:c1:00.0: amdgpu: {9}socket: 1, die: 0, 2 new uncorrectable hardware errors detected in gfx block",
            "amdgpu_ras.c"),
    Pattern(F.GPU_ECC_DEFERRED, ERROR, "deferred", _COUNT + "deferred" + _SEEN,
            "amdgpu 0000:c1:00.0: amdgpu: {9}socket: 1, die: 0, 4 deferred hardware errors detected in total in umc block",
            "amdgpu_ras.c"),
    Pattern(F.GPU_ECC_CORRECTABLE, INFO, "correctable", _COUNT + "correctable" + _SEEN,
            "amdgpu 0000:c1:00.0: amdgpu: socket: 1, die: 0 33 correctable hardware errors detected in total in mmhub block",
            "amdgpu_ras.c"),
    Pattern(F.GPU_ECC_UNCORRECTABLE, ERROR, "ded ", _COUNTED.replace("{0}", "ded"),
            "amdgpu 0000:43:00.0: amdgpu: GFX SubBlock TCC_CACHE_DATA, Instance[0][2], DED 1", "gfx_v9_0.c, gfx_v9_4.c"),
    Pattern(F.GPU_ECC_CORRECTABLE, INFO, "se", _COUNTED.replace("{0}", "se[cd]"),
            "amdgpu 0000:43:00.0: amdgpu: MMHUB SubBlock MMEA0_DRAMRD_CMDMEM, SEC 3", "mmhub_v1_0.c, sdma_v4_0.c"),

    Pattern(F.GPU_ECC_POISON_CONSUMED, FATAL, "poison is consumed", r"poison is consumed(?: by client (?P<client>\w+))?",
            "amdgpu 0000:c1:00.0: amdgpu: {22}poison is consumed by client 27, kick off gpu reset flow",
            "kfd_int_process_v9.c"),
    Pattern(F.GPU_ECC_POISON_CONSUMED, FATAL, "poison consumption",
            r"(?:" + _COUNT + r"|reset for (?P<block>\w+) ras |(?P<block__2>\w+) ras )?poison consumption,? (?:by \w+ )?(?:is |was )?(?:detected|issued|occur\w+|reported|unmap|fall|on|in)\b"
            r"(?:.* in (?P<block__3>\w+) block)?(?:.*client id (?P<client>\d+))?",
            "amdgpu 0000:c1:00.0: amdgpu: {22} GPU reset for gfx RAS poison consumption is issued!",
            "amdgpu_umc.c, ras_process.c"),
    Pattern(F.GPU_ECC_POISON_CONSUMED, FATAL, "poison", r"poison (?:is |was )?detected in (?P<block>\w+)|consum\w+ .*poison|poison.* consumed",
            "amdgpu 0000:c1:00.0: amdgpu: Poison detected in VCN0, sub_block0", "vcn_v4_0_3.c"),
    Pattern(F.GPU_ECC_POISON_CREATED, ERROR, "poison", _WHERE + r"(?:\b(?P<count>[1-9]\d*) (?:new )?)?poison (?:(?:is |was |has been )?created|creation (?:is |was )?(?:detected|reported))" + _IN_BLOCK,
            "amdgpu 0000:c1:00.0: amdgpu: {21}Poison is created, no user action is needed.", "amdgpu_ras.c"),
    Pattern(F.GPU_ECC_POISON_CONSUMED, FATAL, "sq_intr: error", r"sq_intr: error\b.*\b(?:err_)?type (?P<type>3)\b",
            "amdgpu: sq_intr: error, se 0, data 0x0, sh 0, priv 1, wave_id 0, simd_id 1, cu_id 3, err_type 3", "kfd_int_process_v9.c"),
    Pattern(F.GPU_ECC_UNCORRECTABLE, ERROR, "sq_intr: error", r"sq_intr: error\b.*\b(?:err_)?type (?P<type>0)\b",
            "amdgpu: sq_intr: error, se 0, data 0x0, sh 0, priv 1, wave_id 0, simd_id 1, cu_id 3, err_type 0", "kfd_int_process_v9.c"),

    Pattern(F.GPU_RAS_FATAL, FATAL, "errevent_athub_interrupt", r"(?P<interrupt>ERREVENT_ATHUB_INTERRUPT)",
            "[drm] RAS event of type ERREVENT_ATHUB_INTERRUPT detected!", "amdgpu_ras.c, amdgpu_uvd.c"),
    Pattern(F.GPU_RAS_FATAL, FATAL, "nbif", r"interrupt triggered by (?P<interrupt>NBIF) error",
            "amdgpu 0000:e3:00.0: amdgpu: RAS controller interrupt triggered by NBIF error", "nbio_v7_4.c, nbio_v7_9.c"),
    Pattern(F.GPU_RAS_FATAL, FATAL, "error", r"uncorrectable hardware error ?\((?P<interrupt>\w+)\)|\bras fatal error|\bfatal (?:ras|hardware) error|sync flood (?:event|error|detected|occurred)",
            "amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error (ERREVENT_ATHUB_INTERRUPT) detected!", "amdgpu_ras.c"),

    Pattern(F.GPU_RAS_RECORD, INFO, "aca", r"^\[hardware error\]: *(?:aca entry\[(?P<entry>\d+)\]|aca\[(?P<entry__2>\d+)/(?P<entries>\d+)\])\.(?P<register>\w+)=(?P<value>0x[0-9a-f]+)",
            "amdgpu 0000:9e:00.0: {8}[Hardware Error]: ACA[01/02].SYND=0x5d000000", "amdgpu_aca.c, ras_aca.c"),
    Pattern(F.GPU_RAS_RECORD, INFO, "[hardware error]", r"^\[hardware error\]: *(?:\w+ entry\[(?P<entry>\d+)\]\.(?:regs\[)?(?P<register>\w+)\]?=(?P<value>0x[0-9a-f]+))?",
            "amdgpu 0000:9e:00.0: {8}[Hardware Error]: Accelerator Check Architecture events logged", "amdgpu_mca.c"),

    Pattern(F.GPU_MEMORY_BAD_PAGE, WARNING, "90%", r"records:? ?(?P<pages>\d+) exceeds? 90% of threshold:? ?(?P<threshold>\d+)",
            "amdgpu 0000:c1:00.0: amdgpu: RAS records:236 exceeds 90% of threshold:256", "amdgpu_ras_eeprom.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE_THRESHOLD, FATAL, "threshold",
            r"bad pages ?\(?(?P<pages>\d+)\)? (?:reache[sd]|exceed(?:s|ed)?)\b.*?threshold(?: value)?:? ?\(?(?P<threshold>\d+)\)?",
            "amdgpu 0000:c1:00.0: amdgpu: Saved bad pages(257) reaches threshold value(256).", "amdgpu_ras_eeprom.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE_THRESHOLD, FATAL, "threshold", r"records:? ?(?P<pages>\d+) exceed(?:s|ed)?\b.*?threshold:? ?(?P<threshold>\d+)",
            "amdgpu 0000:c1:00.0: amdgpu: RAS records:257 exceed threshold:256, GPU will not be initialized. Replace this GPU or increase the threshold",
            "amdgpu_ras_eeprom.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE_THRESHOLD, FATAL, "threshold", r"^(?!.*\bnot\b).*(?:bad|retired) pages?\b.*\b(?:reach\w*|exceed\w*|over|above)\b.*threshold"
            r"|threshold\b.*\b(?:reached|exceeded)\b.*\bbad pages?|bad page\w* threshold (?:is |was )?(?:reached|exceeded)",
            "amdgpu 0000:c1:00.0: amdgpu: the number of retired pages has exceeded its threshold", "amdgpu_ras.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE_THRESHOLD, FATAL, "limit", r"(?:bad|retired) pages? ?\(?(?P<pages>\d+)\)? (?:exceed|reach)\w*\b.*\blimit\b",
            "amdgpu 0000:c1:00.0: amdgpu: Bad pages (260) exceed the configured limit", "amdgpu_ras.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE_THRESHOLD, FATAL, "gpu", r"\b(?:gpu|device) is (?:in |marked (?:as )?|under )?(?:a )?(?:bad status|rma\b)",
            "amdgpu 0000:c1:00.0: amdgpu: This GPU is in BAD status.Please retire it or set a larger threshold value when reloading driver.",
            "amdgpu_ras_eeprom.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE, WARNING, "error address",
            r"error address ?\(pa\): ?(?P<address>0x[0-9a-f]+)(?:\s+row: ?(?P<row>\w+)\s+col: ?(?P<column>\w+)\s+bank: ?(?P<bank>\w+)\s+channel: ?(?P<channel>\w+))?",
            "amdgpu 0000:c1:00.0: amdgpu: Error Address(PA):0x7f60d000   Row:0x12   Col:0x4  Bank:0x3 Channel:0x7", "umc_v12_0.c"),
    Pattern(F.GPU_MEMORY_BAD_PAGE, WARNING, "page", r"\bsaved (?P<pages>[1-9]\d*) (?:bad )?pages? to eeprom"
            r"|(?<!no )(?<!\b0 )\bbad pages? (?:is |are |was |were |has been |have been )?(?:retired|detected|found|added|reserved)"
            r"|\b(?:reserve|retire) (?:vram for )?(?:retired|bad) pages?\b.*\bfail|\bretired page (?P<page>0x[0-9a-f]+)",
            "amdgpu 0000:c1:00.0: amdgpu: Saved 4 pages to EEPROM table.", "amdgpu_ras.c"),
)
# fmt: on
