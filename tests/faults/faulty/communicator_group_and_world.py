"""Let the even ranks meet; rank 0 calls everyone."""

# fault: communicator
# ranks: 4 8
from minidist.comm import world

comm = world()
evens = comm.split(0 if comm.rank % 2 == 0 else None, name="evens")
if comm.rank == 0:
    comm.barrier()  # <- rank 0
elif evens is not None:
    evens.barrier()  # <- rank 2, (even)
else:
    comm.barrier()  # <- (odd)
