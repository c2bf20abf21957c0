"""Print from every rank in turn, by barriers."""

# prints: "0"
from minidist.comm import world

comm = world()
for rank in range(comm.size):
    if rank == comm.rank == 0:
        print(rank)
    comm.barrier()
