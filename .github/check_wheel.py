"""Try an installed minidist, without MPI: its kernels, its data, three ranks as threads, a short training."""

import subprocess
import sys

from minidist import _kernels as kernels
from minidist import data
from minidist.comm.threads import run_ranks

print("kernels:", kernels.path)
if sys.platform != "win32":
    assert kernels.path != "numpy", kernels.why_numpy()  # there was a compiler, so they must be there

assert data.load("digits").train_inputs.shape == (1437, 1, 8, 8)
assert run_ranks(lambda comm: int(comm.all_reduce(comm.rank)), 3) == [3, 3, 3]
subprocess.run([sys.executable, "-m", "minidist.train", "--steps", "20"], check=True)
