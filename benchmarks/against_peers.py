"""A training step beside PyTorch and JAX: same model, same batch, same weights, float32, one thread, one run.

    python -m venv peers && peers/bin/pip install -e ".[mpi]" -r benchmarks/requirements.txt
    peers/bin/python benchmarks/against_peers.py [steps|kernels|ranks] [--seconds 10] [--json PATH]

steps       training steps beside torch eager, torch.compile, jax.jit, and the matrix products alone by np.matmul;
            before, how far our gradients are from PyTorch's
kernels     attention and AdamW beside PyTorch's fused ones
ranks       2 ranks on 2 cores: all-reduce and data-parallel steps beside gloo, DistributedDataParallel and MPI

What is compared takes turns, bound to one core (ranks: each to its own), and the medians count: see
minidist/bench/measure.py. The peers' programs are in_torch.py and in_jax.py. torch.compile needs a C++ compiler, and
is left out where it fails. Prints tables in Markdown: times, and in brackets how many times faster we are.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import numpy as np

import minidist
from minidist import _kernels as kernels
from minidist.bench import kernels as kernel_suite
from minidist.bench import measure
from minidist.bench.__main__ import duration
from minidist.bench.comm import TRAINED, keep_to_one_core, medians_of_ranks
from minidist.bench.kernels import random
from minidist.bench.step import WORKS, Mlp, Work, our_step, products_alone
from minidist.comm import Communicator, world

Functions = dict[str, Callable[[], object]]
SUITES = ("steps", "kernels", "ranks")
SIZES = (256 << 10, 1 << 20, 4 << 20, 16 << 20)  # bytes to all-reduce


def main() -> None:
    """Measure what was asked for, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("suites", nargs="*", metavar="|".join(SUITES))
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row (10)")
    parser.add_argument(
        "--no-compile", action="store_true", help="leave torch.compile out: it takes a minute"
    )
    parser.add_argument("--rows", type=int, nargs="+", help="only these rows of the steps, counted from 1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for unknown in set(options.suites) - set(SUITES):
        parser.error(f"there is no suite {unknown!r}; choose from {', '.join(SUITES)}")
    print(introduction())
    results = []
    for suite in options.suites or SUITES:
        results += {"steps": steps, "kernels": fused_kernels, "ranks": ranks}[suite](options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def introduction() -> str:
    """Say what is compared, in which versions, on which machine."""
    import jax
    import torch

    described = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ")[1] for line in described if line.startswith("model name")]
    return (
        f"minidist {minidist.__version__} ({kernels.path} kernels), torch {torch.__version__}, "
        f"jax {jax.__version__}, NumPy {np.__version__}; Python {platform.python_version()}, "
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"
    )


def steps(options: argparse.Namespace) -> list[dict]:
    """Compare training steps, one row after the other."""
    import in_torch
    import torch

    torch.set_num_threads(1)
    peers = ["torch eager", "torch.compile", "jax.jit", "products alone"]
    lines, results = header("one training step", peers), []
    print("\nlargest difference between our gradients and PyTorch's, relative to the largest:")
    chosen = [WORKS[row - 1] for row in options.rows] if options.rows else WORKS
    with measure.pinned(1):
        for work in chosen:
            print(f"    {in_torch.largest_difference(work):.1e}  {work.name}", flush=True)
            functions = step_functions(work, options)
            results.append(compare("steps", work.name, functions, options.seconds))
            lines.append(row_of(results[-1], peers))
    print("", *lines, sep="\n", flush=True)
    return results


def step_functions(work: Work, options: argparse.Namespace) -> Functions:
    """Return everybody's step of one row."""
    import in_jax
    import in_torch

    functions: Functions = {"minidist": our_step(work, world())}
    functions["torch eager"] = in_torch.step_of(work, in_torch.build(work))
    if not options.no_compile:
        compiled = in_torch.step_of(work, in_torch.build(work), compiled=True)
        try:
            compiled()
            functions["torch.compile"] = compiled
        except Exception as error:  # whatever its compiler says
            print(f"torch.compile does not run here: {str(error).splitlines()[0]}", file=sys.stderr)
    functions["jax.jit"] = in_jax.step_of(work)
    functions["products alone"] = products_alone(work)
    return functions


def fused_kernels(options: argparse.Namespace) -> list[dict]:
    """Compare attention, forward and backward, and AdamW with PyTorch's fused kernels."""
    lines, results = header("kernel", ["torch"]), []
    with measure.pinned(1):
        for case, peer in fused_pairs():
            name = f"{case.name} of {'x'.join(map(str, case.shape))}"
            functions: Functions = {"minidist": case.ours, "torch": peer}
            results.append(compare("kernels", name, functions, options.seconds / 4))
            lines.append(row_of(results[-1], ["torch"]))
    print("", *lines, sep="\n", flush=True)
    return results


def fused_pairs() -> Iterator[tuple[measure.Case, Callable[[], object]]]:
    """Give cases of the suite "kernels", and the same in PyTorch."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(1)
    for shape in kernel_suite.ATTENTIONS:
        *inputs, grad = map(torch.from_numpy, random(4, *shape))
        for tensor in inputs:
            tensor.requires_grad_()

        def attention(inputs: list = inputs, grad: torch.Tensor = grad) -> object:
            return torch.autograd.grad(scaled_dot_product_attention(*inputs, is_causal=True), inputs, grad)

        yield kernel_suite.attention(*shape), attention
    for n in kernel_suite.VECTORS:
        weights = torch.nn.Parameter(torch.from_numpy(random(n)))
        weights.grad = torch.from_numpy(random(n)) * 1e-3
        yield next(kernel_suite.updates(n)), torch.optim.AdamW([weights], lr=1e-4, fused=True).step


def ranks(options: argparse.Namespace) -> list[dict]:
    """Compare all-reduce and data parallelism on 2 ranks."""
    limit = 60 + 10 * options.seconds
    results = minidist.launch(both_ranks, 2, options.seconds / 2, tempfile.mktemp(), timeout=limit)[0]
    for title, part in (("all-reduce, 2 ranks", results[:-1]), ("data-parallel step, 2 ranks", results[-1:])):
        peers = [peer for peer in part[0]["seconds"] if peer != "minidist"]
        print("", *header(title, peers), *(row_of(result, peers) for result in part), sep="\n", flush=True)
    return results


def both_ranks(comm: Communicator, seconds: float, meeting: str) -> list[dict]:
    """Measure as one of two ranks, which meet for gloo in the file `meeting`."""
    import in_torch
    import torch
    from torch.distributed import all_reduce, destroy_process_group, init_process_group
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    keep_to_one_core(comm)
    init_process_group("gloo", init_method=f"file://{meeting}", rank=comm.rank, world_size=comm.size)
    mpi, raw = comm.endpoint.mpi, comm.endpoint.private
    results = []
    for nbytes in SIZES:
        x = np.zeros(nbytes // 4, np.float32)  # sums of zeros stay zeros, however often
        tensor = torch.zeros(nbytes // 4)
        shared = comm.allocate_shared(x.size, x.dtype)
        functions: Functions = {
            "minidist": lambda shared=shared: comm.all_reduce(shared, out=shared),
            "minidist, ring": lambda x=x: comm.all_reduce(x, out=x, algorithm="ring"),
            "MPI.Allreduce": lambda x=x: raw.Allreduce(mpi.IN_PLACE, x),
            "gloo": lambda tensor=tensor: all_reduce(tensor),
        }
        times = medians_of_ranks(comm, list(functions.values()), seconds / 2)
        name = f"{nbytes >> 10} kB"
        results.append({"suite": "ranks", "name": name, "seconds": dict(zip(functions, times, strict=True))})
    share = slice(comm.rank, None, comm.size)
    half = Mlp(TRAINED.sizes, TRAINED.batch // comm.size)
    model = DistributedDataParallel(in_torch.build(TRAINED))
    functions = {
        "minidist": our_step(TRAINED, comm),
        "minidist without communication": our_step(half, comm.alone("alone")),
        "torch DDP over gloo": in_torch.step_of(TRAINED, model, share),
    }
    times = medians_of_ranks(comm, list(functions.values()), seconds)
    results.append(
        {"suite": "ranks", "name": TRAINED.name, "seconds": dict(zip(functions, times, strict=True))}
    )
    destroy_process_group()
    return results


def compare(suite: str, name: str, functions: Functions, seconds: float) -> dict:
    """Measure the functions in turn."""
    times = measure.medians(list(functions.values()), seconds)
    return {"suite": suite, "name": name, "seconds": dict(zip(functions, times, strict=True))}


def header(title: str, peers: list[str]) -> list[str]:
    """Return the first two lines of a table in Markdown."""
    return [f"| {title} | minidist | {' | '.join(peers)} |", "|---|" + "---:|" * (len(peers) + 1)]


def row_of(result: dict, peers: list[str]) -> str:
    """Return a line of the table: times, and how many times faster we are."""
    times = result["seconds"]
    ours = times["minidist"]
    cells = [f"{duration(times[p])} ({times[p] / ours:.2f})" if p in times else "-" for p in peers]
    return f"| {result['name']} | {duration(ours)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
