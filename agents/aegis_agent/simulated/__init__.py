"""Simulated hardware: a libamd_smi.so over a folder of text files, and a network port's sysfs tree.

The unmodified `amdsmi` package of PyPI runs on the library:

    python -m aegis_agent.simulated build OUT
    python -m aegis_agent.simulated init DIR 8
    ROCM_PATH=OUT AEGIS_SIM_AMDSMI=DIR aegis agent --once

What is read through it is called simulated everywhere. `c/simulation.h` says which file means what.
"""
