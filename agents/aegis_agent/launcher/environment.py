"""A rank's environment: torchrun's variables, unchanged, and a few of our own. Pure."""

from collections.abc import Mapping

from aegis.model.job import Assignment, JobSpec, World

# What a standby cannot know before it has a place, beside what is our own.
GATED = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_ERROR_FILE",
)


def of_job(spec: JobSpec) -> dict[str, str]:
    """What every rank of the job finds there, whatever its place and generation."""
    size = str(spec.nodes * spec.ranks_per_node)
    return {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(spec.ranks_per_node),
        "GROUP_WORLD_SIZE": str(spec.nodes),
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "default",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": spec.name,
        "TORCHELASTIC_MAX_RESTARTS": str(spec.restarts_max),
        "AEGIS_JOB": spec.name,
        "AEGIS_CHECKPOINT_FOLDER": spec.checkpoint_folder,
    }


def of_rank(
    spec: JobSpec,
    assignment: Assignment,
    world: World,
    group_rank: int,
    local_rank: int,
) -> dict[str, str]:
    """What the rank finds in its environment beside what the launcher was started with."""
    size = str(len(world.members) * world.ranks_per_node)
    rank = str(group_rank * world.ranks_per_node + local_rank)
    return of_job(spec) | {
        "RANK": rank,
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(world.ranks_per_node),
        "GROUP_RANK": str(group_rank),
        "GROUP_WORLD_SIZE": str(len(world.members)),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": world.master_address,
        "MASTER_PORT": str(world.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(assignment.generation - 1),
        "AEGIS_GENERATION": str(assignment.generation),
        "AEGIS_EPOCH": str(assignment.epoch),
        "AEGIS_LABELS": ",".join(f"{name}={value}" for name, value in assignment.labels),
        "AEGIS_SUSPECT": f"{assignment.suspect_since}:{assignment.suspect_generation}",
    }


def of_helpers(inherited: Mapping[str, str], ranks_per_node: int) -> dict[str, str]:
    """What must be settled before a library is imported, for the ranks' parent and its forks.

    numpy's OpenBLAS starts its threads on import, and a process with threads cannot be forked
    safely; torch's own threads start in the ranks and are not bound by this.
    """
    settled = {"OPENBLAS_NUM_THREADS": inherited.get("OPENBLAS_NUM_THREADS", "1")}
    if ranks_per_node > 1:
        settled["OMP_NUM_THREADS"] = inherited.get("OMP_NUM_THREADS", "1")
    return {**inherited, **settled}
