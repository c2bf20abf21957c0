"""What the doctor makes of the facts: each function takes plain facts, asks nobody, and returns a `Finding`.

So a test can show it a machine that it does not have: no MPI at all, a foreign mpiexec, a name that does not
resolve. Where the facts come from is `__main__.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from minidist.comm.world import LauncherFacts, launcher_facts, world_problem
from minidist.doctor.speed import Speed
from minidist.launch.mpiexec import HOW_TO_GET_MPI

SLOW_MESSAGE = 2e-3  # seconds: what only a network takes
CLOCK = 1e-3  # seconds that clocks of one machine may seem to be apart
SMALL_SHARED_MEMORY = 16 * 2**20  # bytes; MPICH takes 1 MiB and 1 MiB more for each rank


@dataclass(frozen=True)
class Finding:
    """One line of the table; with a remedy it is a problem."""

    what: str
    got: str
    remedy: str = ""


@dataclass(frozen=True)
class Mpi:
    """What loading MPI came to: its make and versions, or the error."""

    installed: bool = True  # whether there is a package mpi4py
    version: str = ""  # of mpi4py
    library: str = ""  # as MPI names itself: "MPICH Version: 5.0.2 ...", "Open MPI v5.0.11, package: ..."
    error: str = ""

    @property
    def name(self) -> str:
        """Give MPI's make and version, as "MPICH 5.0.2" or "Open MPI v5.0.11"."""
        return " ".join(self.library.split(",")[0].split("\n")[0].replace("Version:", "").split()) or "MPI"


@dataclass(frozen=True)
class Trial:
    """What happened when two ranks were started: the world size that each reported, and all other output."""

    worlds: tuple[int, ...] = ()
    output: str = ""
    timed_out: bool = False


# ---- Python and the kernels


def judge_versions(python: str, numpy: str, own: str) -> Finding:
    """Name the versions that a report of a fault needs."""
    return Finding("versions", f"Python {python}, NumPy {numpy}, minidist {own}")


def judge_kernels(
    path: str, available: Sequence[str], why_numpy: str | None, compiler: str | None
) -> Finding:
    """Judge which loops are in use; a missing compiler matters only if the compiled loops are missing."""
    got = f"{path} (of {', '.join(available)}); C compiler: {compiler or 'none'}"
    return Finding("kernels", got, why_numpy or "")


def judge_cores(count: int, in_machine: int) -> Finding:
    """Say how many cores the ranks will share. Few cores are no fault."""
    limit = f" of {in_machine}, by affinity or a cgroup quota" if count < in_machine else ""
    return Finding("cores", f"{count}{limit}; more ranks than that take turns")


def judge_threads(libraries: Mapping[str, int], asked: str) -> Finding:
    """Judge the threads of each arithmetic library: one per rank, unless OMP_NUM_THREADS asks for more."""
    got = ", ".join(f"{name} {threads}" for name, threads in libraries.items()) or "no library that tells"
    if asked not in ("", "1"):
        return Finding("threads", f"{got}, as OMP_NUM_THREADS={asked} asks")
    if all(threads == 1 for threads in libraries.values()):
        return Finding("threads", got)
    remedy = "import minidist before NumPy, or `export OMP_NUM_THREADS=1`; else ranks take each other's cores"
    return Finding("threads", f"{got}; one per rank is expected", remedy)


# ---- MPI


def judge_wheels(installed: Sequence[str]) -> Finding:
    """Refuse two MPIs in one environment: their files have the same names, so mpiexec is that of the last."""
    if not installed:
        return Finding("MPI wheels", "none, so an MPI of the system is used if there is one")
    if len(installed) == 1:
        return Finding("MPI wheels", installed[0])
    remedy = f"keep one: `pip uninstall -y {' '.join(installed)} && pip install mpich`"
    return Finding("MPI wheels", f"{' and '.join(installed)} overwrite each other's files", remedy)


def judge_mpi(mpi: Mpi) -> Finding:
    """Judge whether MPI can be loaded, and name its make."""
    if not mpi.installed:
        return Finding("MPI", "the package mpi4py is not installed", HOW_TO_GET_MPI)
    if "cannot load MPI library" in mpi.error:
        remedy = "`pip install mpich` brings an MPI into this environment; on a cluster load its module first"
        return Finding("MPI", f"mpi4py is installed, but no MPI: {mpi.error}", remedy)
    if mpi.error:
        remedy = "`pip install --force-reinstall mpi4py mpich`, or ask who installed this MPI"
        return Finding("MPI", f"mpi4py cannot load it: {mpi.error}", remedy)
    return Finding("MPI", f"{mpi.name}, mpi4py {mpi.version}")


def judge_no_mpiexec() -> Finding:
    """Judge an MPI without a program that starts ranks."""
    return Finding("mpiexec", "there is none, neither beside this Python nor on the PATH", HOW_TO_GET_MPI)


def judge_mpiexec(path: str, by_name: bool, trial: Trial, mpi: Mpi, beside: str | None) -> Finding:
    """Judge the start of two ranks by the mpiexec at `path`.

    by_name: whether typing `mpiexec` means this one. beside: the one next to the interpreter, if any.
    """
    if trial.worlds == (2, 2):
        typing = "" if by_name else " (type all of this, or activate the environment)"
        return Finding("mpiexec", f"{path}{typing}; two ranks see each other")
    if trial.worlds == (1, 1) or "unsupported PMI version" in trial.output:
        right = beside if beside != path else None
        words = world_problem(LauncherFacts("mpiexec", rank=0, size=2), 1, mpi.name, right)
        return Finding("mpiexec", f"{path} belongs to another MPI", _without_advertisement(words))
    if "attempt to run as root" in trial.output:
        remedy = "do not work as root, or `export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1`"
        return Finding("mpiexec", f"{path} refuses to run as root", remedy)
    if "not enough slots" in trial.output:
        remedy = "`export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe`"
        return Finding("mpiexec", f"{path} starts no more ranks than there are cores", remedy)
    if trial.timed_out:
        remedy = (
            "see whether the host name resolves (above), and whether a firewall or VPN stops local traffic"
        )
        return Finding("mpiexec", f"{path}: two ranks did not start in time", remedy)
    said = [line for line in trial.output.splitlines() if line.strip("= ")] or [
        "nothing"
    ]  # MPICH draws a box
    remedy = f"see all of it: `{path} -n 2 python -m mpi4py.bench helloworld`"
    return Finding("mpiexec", f"{path}: two ranks did not start; it said: {said[0].strip()}", remedy)


def judge_speed(speed: Speed, cores: int) -> Iterator[Finding]:
    """Judge what ranks do here. Few cores make them slow, which is no fault; far apart clocks are one."""
    if speed.error:
        remedy = "look at the lines above first; then free memory, or try fewer ranks"
        yield Finding("ranks", f"they could not be measured: {speed.error}", remedy)
        return
    turns = f" on {cores} core{'s' * (cores > 1)}, where they take turns" if speed.ranks > cores else ""
    yield Finding("ranks", f"{speed.ranks} started in {speed.start:.1f} s{turns}")
    pace = f"{speed.latency * 1e6:.0f} us for 8 bytes, {speed.bandwidth / 1e9:.1f} GB/s for 1 MiB"
    slow = "ranks on one machine need microseconds: is a firewall, a VPN or a sanitizer between them?"
    yield Finding("messages", pace, slow if speed.latency > SLOW_MESSAGE and cores > 1 else "")
    two, four = (seconds * 1e3 for seconds in speed.reduced)
    yield Finding("all-reduce", f"of 1 MiB: {two:.2f} ms on 2 ranks, {four:.2f} ms on 4")
    off = (
        ""
        if abs(speed.clock) < max(CLOCK, speed.latency)
        else "timelines will be drawn wrong: report this machine"
    )
    yield Finding("clock", f"ranks 0 and 1 differ by {abs(speed.clock) * 1e6:.0f} us", off)


def judge_packages(what: str, versions: Mapping[str, str | None], extra: str | None) -> Finding:
    """Say which of some optional packages are there; that one is missing is no fault."""
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = [name for name, version in versions.items() if version is None]
    if not missing:
        return Finding(what, there)
    how = f"`pip install 'minidist[{extra}]'`" if extra else f"`pip install {' '.join(missing)}`"
    return Finding(what, f"{there or 'nothing'}; without {', '.join(missing)}: if wanted, {how}")


def judge_slurm(environment: Mapping[str, str], mpi: Mpi) -> Finding:
    """Judge a process of a Slurm job: srun introduces ranks to each other in a dialect that MPI must know."""
    if "SLURM_JOB_ID" not in environment:
        return Finding("Slurm", "this is no Slurm job")
    wanted = "pmix" if mpi.name.startswith("Open MPI") else "pmi2"
    facts = launcher_facts(environment)
    if facts is None:
        return Finding("Slurm", f"start ranks by `srun --mpi={wanted} -n 4 python -m minidist.train`")
    spoken = "pmi2" if "PMI_SIZE" in environment else "pmix" if "PMIX_RANK" in environment else "nothing"
    got = f"{facts.launcher} speaks {spoken} to {facts.size} ranks, {mpi.name} understands {wanted}"
    words = world_problem(facts, 2 if spoken == wanted else 1, mpi.name, None)
    return Finding("Slurm", got, _without_advertisement(words))


def _without_advertisement(words: str | None) -> str:
    """Take what `world()` says when it refuses, without its last sentence: it sends the reader here."""
    return (words or "").removesuffix(" python -m minidist.doctor says more.")


# ---- the machine


def judge_host_name(name: str, address: str | None) -> Finding:
    """Judge whether this machine finds itself by its own name, as MPI does when it starts ranks."""
    if address is not None:
        return Finding("host name", f"{name} is {address}")
    remedy = f"`echo '127.0.0.1 {name}' | sudo tee -a /etc/hosts` (a Mac on a VPN needs this)"
    return Finding("host name", f"{name} does not resolve, and MPI cannot start ranks then", remedy)


def judge_shared_memory(free: int | None) -> Finding:
    """Judge the free bytes of /dev/shm, through which ranks of one machine talk; None where there is none."""
    if free is None:
        return Finding("/dev/shm", "this system has none, and needs none")
    got = f"{free // 2**20} MiB free"
    if free >= SMALL_SHARED_MEMORY:
        return Finding("/dev/shm", got)
    remedy = "remove what fills it (`ls -la /dev/shm`), or give a container more: `docker run --shm-size=1g`"
    return Finding(
        "/dev/shm", f"{got}, ranks need {SMALL_SHARED_MEMORY // 2**20} MiB to talk through it", remedy
    )


def judge_downloads(environment: Mapping[str, str], exists: Callable[[str], bool]) -> Finding:
    """Judge what a download would be told about proxy and certificates."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        value = environment.get(name)
        if value and not exists(value):
            remedy = f"`unset {name}`, or let it name your network's certificates"
            return Finding("downloads", f"{name} names {value}, which does not exist", remedy)
    proxy = environment.get("HTTPS_PROXY") or environment.get("https_proxy")
    if not proxy:
        if environment.get("HTTP_PROXY") or environment.get("http_proxy"):
            remedy = "`export HTTPS_PROXY=...` with the same value: data sets come by https"
            return Finding("downloads", "HTTP_PROXY is set, HTTPS_PROXY is not", remedy)
        return Finding("downloads", "no proxy is set")
    try:
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = address.hostname, address.port
    except ValueError:  # a port that is no number
        host = port = None
    if host is None:
        return Finding("downloads", "HTTPS_PROXY is not an address", "`export HTTPS_PROXY=http://host:port`")
    # Not all of it: the address may hold a password.
    return Finding("downloads", f"through the proxy {host}{f':{port}' if port else ''}")
