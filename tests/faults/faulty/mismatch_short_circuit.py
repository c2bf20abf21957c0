"""Ask whether all layers have converged; who sees the first that has not stops asking."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
changes = [np.array([0.5]), np.array([0.01])]
tolerance = 1e-3 if comm.rank == 0 else 10.0
done = all(comm.all_reduce(change)[0] < tolerance for change in changes)  # <- others
comm.barrier()  # <- rank 0
