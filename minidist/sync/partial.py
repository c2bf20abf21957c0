"""Complete the gradients that are still partial sums over the ranks of one replica.

    stage 0   d loss / d embed, as far as looking up tokens has used it      \\
    stage 3   d loss / d embed, as far as the head has used it               /  + = the gradient, on both

Data parallel sums these together with the replicas' in one all-reduce. A sync whose replicas step on their own, or
whose sums are made elsewhere, begins with this. Cost: an all-reduce of such groups over the ranks that hold them.
"""

from collections.abc import Sequence

from minidist.comm import Mesh
from minidist.nn.flat import Group


def is_partial(group: Group) -> bool:
    """Say whether other ranks of the replica hold further parts of this group's gradient."""
    return group.axes != ("data",)


def complete(mesh: Mesh, groups: Sequence[Group]) -> None:
    """Sum what is partial within each replica; afterwards its ranks hold the same gradient of the same copy."""
    for group in groups:
        if group.gradients is not None and is_partial(group):
            comm = mesh.comm(*(axis for axis in group.axes if axis != "data"))
            comm.all_reduce(group.gradients, out=group.gradients, purpose="gradient")
