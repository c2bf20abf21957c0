"""Reduce every kind of number."""

# prints: "ok"
import numpy as np

from minidist.comm import world

comm = world()
for dtype in (np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, np.complex64):
    assert (comm.all_reduce(np.ones(3, dtype)) == comm.size).all()
assert comm.all_reduce(np.array([True, comm.rank == 0]), op="min").tolist() == [True, False]
if comm.rank == 0:
    print("ok")
