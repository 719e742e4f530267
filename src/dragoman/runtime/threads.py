"""Count the cores; tell OpenMP how to wait and oneDNN how many shapes to remember, before PyTorch is imported.

Every command begins by loading this, so it imports almost nothing.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping

# A thread that waits for another one looks this often before it sleeps: what GNU OpenMP does unless told otherwise, and
# about as long as it takes to fall asleep and wake up.
SPINS, FEW_SPINS = "300000", "1000"
# On CPUs, oneDNN keeps a program for each shape that it has met, and PyTorch around it another one, with its memory:
# together half a megabyte for each number of rows, and up to 1,024 of each. Layers share shapes, so a few are enough.
SHAPES = "32"
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
ALL_BUT_AMX = "AVX512_CORE_FP16"  # the newest instructions before AMX, as oneDNN calls them


def configure_openmp(environment: MutableMapping[str, str]) -> None:
    """Set the environment variables of OpenMP, in place; it reads them when PyTorch is imported.

    There is one thread for each core that the process may use. Threads that wait spin; `runtime/waiting.py` lets them
    sleep while other programs want the cores. With a quota they sleep, because spinning would use it up, and so they do
    in OpenMP libraries other than GNU's, which `runtime/waiting.py` cannot tell. What the user has set stays.
    """
    cores = granted_cores()
    whole = cores == scheduled_cores()
    if not environment.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        environment.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT=SPINS if whole else FEW_SPINS)
    if not whole:  # the number of cores, OpenMP sees itself
        environment.setdefault("OMP_NUM_THREADS", str(cores))


def waits_as_others_want(environment: Mapping[str, str]) -> bool:
    """Return whether `configure_openmp` let threads spin, as far as other programs allow it."""
    return environment.get("OMP_WAIT_POLICY") == "PASSIVE" and environment.get("GOMP_SPINCOUNT") == SPINS


def configure_onednn(environment: MutableMapping[str, str]) -> None:
    """Set how many shapes oneDNN remembers, in place; it reads that when it computes for the first time.

    That takes no time and saves hundreds of megabytes (docs/notes/speed.md). What the user has set stays.
    """
    for name in CACHES:
        environment.setdefault(name, SHAPES)


def leave_out_amx(environment: MutableMapping[str, str]) -> None:
    """Let oneDNN multiply without AMX in this process, in place; it reads that when it computes for the first time.

    For int8 in a few rows, where it would reorder the whole matrix for AMX at each call. bfloat16 needs AMX. What the
    user has set stays.
    """
    environment.setdefault("ONEDNN_MAX_CPU_ISA", ALL_BUT_AMX)


def granted_cores(root: str = "/") -> int:
    """Return how many cores this process may use, 1 or more, by its affinity and by the quotas of its control groups.

    root: the folder with `proc` and `sys`. A quota of 2.5 cores counts as 2: a third thread would be stopped half the
    time while the others wait for it.
    """
    return max(1, int(min([scheduled_cores(), *quotas(root)])))


def scheduled_cores() -> int:
    """Return how many cores this process may be scheduled on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # not Linux


def quotas(root: str) -> Iterator[float]:
    """Yield the quotas, in cores, of the control groups of this process, versions 1 and 2, and of their parents."""
    for folder in control_groups(root, "cpu"):
        limit = read(root, f"{folder}/cpu.max").split()
        limit = limit or [read(root, f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(limit) == 2 and all(number.isdigit() for number in limit) and int(limit[1]):  # not 'max', not -1
            yield int(limit[0]) / int(limit[1])


def control_groups(root: str, controller: str) -> Iterator[str]:
    """Yield the folders, below `root`, of the control groups of this process, versions 1 and 2, and of their parents.

    controller: `cpu` or `memory`. In a container the path of a group may be that of the host, which is not there; the
    root of the mount then has the limits.
    """
    for line in read(root, "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = f"sys/fs/cgroup/{controllers}" if controllers else "sys/fs/cgroup"
        while path not in ("", "/"):
            yield mount + path
            path = path.rpartition("/")[0]
        yield mount


def read(root: str, name: str) -> str:
    """Return the text of a file below `root`; '' where it cannot be read."""
    try:
        with open(f"{root}/{name}", encoding="utf-8") as file:  # noqa: PTH123, as pathlib takes a while to import
            return file.read()
    except (OSError, ValueError):
        return ""
