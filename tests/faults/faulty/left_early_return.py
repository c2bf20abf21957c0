"""Sum what each rank has found; a rank that has found nothing returns early."""

# fault: left
# left: 1
# prints: 2.0 * (n - 1)
import numpy as np

from minidist.comm import world


def main(comm):
    found = np.array([0.0 if comm.rank == 1 else 2.0])
    if not found.any():
        return
    total = comm.all_reduce(found)  # <- others
    if comm.rank == 0:
        print(total[0])


main(world())
