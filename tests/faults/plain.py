"""Run a program of the bench on plain mpi4py: each call becomes the one that an mpi4py tutorial teaches.

    mpiexec -n 4 python plain.py faulty/mismatch_order.py

Buffers go to MPI as they are, and nothing is checked: what happens then is what MPI makes of it.
"""

import runpy
import sys
import types

import numpy as np
from mpi4py import MPI

OPERATIONS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}


class Later:
    """A request whose `wait` gives a result, too."""

    def __init__(self, request, result=None):
        self.request, self.result = request, result

    def wait(self):
        """Wait for it."""
        self.request.Wait()
        return self.result

    def test(self):
        """Ask whether it is complete."""
        return self.request.Test()


class Plain:
    """A communicator of mpi4py under the names that the programs use."""

    def __init__(self, comm):
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()

    def all_reduce(self, x, op="sum", out=None):
        """Call Allreduce."""
        x = np.ascontiguousarray(x).reshape(np.shape(x))
        if out is x:
            self.comm.Allreduce(MPI.IN_PLACE, x, OPERATIONS[op])
            return x
        out = np.empty_like(x)
        self.comm.Allreduce(x, out, OPERATIONS[op])
        return out

    def iall_reduce(self, x):
        """Call Iallreduce."""
        out = np.empty_like(x)
        return Later(self.comm.Iallreduce(x, out), out)

    def reduce(self, x, op="sum", root=0):
        """Call Reduce."""
        out = np.empty_like(x) if self.rank == root else None
        self.comm.Reduce(x, out, OPERATIONS[op], root)
        return out

    def broadcast(self, x, root=0):
        """Call Bcast: who has no memory for it makes some, as large as the tutorial says."""
        x = np.empty(3) if x is None else x
        self.comm.Bcast(x, root)
        return x

    def ibroadcast(self, x, root=0):
        """Call Ibcast."""
        return Later(self.comm.Ibcast(x, root), x)

    def all_gather(self, x):
        """Call Allgather."""
        x = np.ascontiguousarray(x)
        out = np.empty((self.size * len(x), *x.shape[1:]), x.dtype)
        self.comm.Allgather(x, out)
        return out

    def gather(self, x, root=0):
        """Call Gather."""
        out = np.empty((self.size, *np.shape(x))) if self.rank == root else None
        self.comm.Gather(x, out, root)
        return out

    def all_to_all(self, x):
        """Call Alltoall."""
        out = np.empty_like(x)
        self.comm.Alltoall(x, out)
        return out

    def reduce_scatter(self, x, counts):
        """Call Reduce_scatter."""
        row = int(np.prod(x.shape[1:]))
        out = np.empty((counts[self.rank], *x.shape[1:]))
        self.comm.Reduce_scatter(x, out, [count * row for count in counts])
        return out

    def allocate_shared(self, n, dtype):
        """Make an ordinary array: the sum in place is what the program is about."""
        return np.zeros(n, dtype)

    def barrier(self):
        """Call Barrier."""
        self.comm.Barrier()

    def send(self, x, dest, tag=0):
        """Call Send."""
        self.comm.Send(np.ascontiguousarray(x), dest, tag)

    def recv(self, out, source, tag=0):
        """Call Recv."""
        status = MPI.Status()
        self.comm.Recv(out, source, tag, status)
        return status.Get_source()

    def isend(self, x, dest, tag=0):
        """Call Isend."""
        return Later(self.comm.Isend(x, dest, tag))

    def irecv(self, out, source, tag=0):
        """Call Irecv."""
        return Later(self.comm.Irecv(out, source, tag), source)

    def sendrecv(self, x, dest, out, source, tag=0):
        """Call Sendrecv."""
        self.comm.Sendrecv(np.array(x), dest, tag, out, source, tag)

    def split(self, color, key=0, name=None):
        """Call Split."""
        new = self.comm.Split(MPI.UNDEFINED if color is None else color, key)
        return None if new == MPI.COMM_NULL else Plain(new)


class Mesh:
    """A Cartesian communicator, one Sub for each axis."""

    def __init__(self, comm, **axes):
        cart = comm.comm.Create_cart(list(axes.values()))
        self.coordinates = dict(zip(axes, cart.Get_coords(cart.Get_rank()), strict=True))
        self.comms = {axis: Plain(cart.Sub([axis == other for other in axes])) for axis in axes}

    def comm(self, axis):
        """Give the communicator along an axis."""
        return self.comms[axis]


if __name__ == "__main__":
    stand_in = types.ModuleType("minidist.comm")
    stand_in.world, stand_in.Mesh = lambda: Plain(MPI.COMM_WORLD), Mesh
    stand_in.ANY_SOURCE = MPI.ANY_SOURCE
    sys.modules["minidist.comm"] = stand_in
    runpy.run_path(sys.argv[1], run_name="__main__")
