"""Skip a batch whose loss is not a number: from then on that rank is one sum behind."""

# fault: left
# left: 1
import numpy as np

from minidist.comm import world

comm = world()
for step in range(4):
    loss = np.array([np.nan if comm.rank == 1 and step == 2 else 1.0])
    if np.isnan(loss).any():
        continue
    mean = comm.all_reduce(loss) / comm.size  # <- others
