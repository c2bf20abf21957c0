"""Put a model that is spread over ranks together again: to compare it, to keep it, to let it write.

    rank 0  embed, block.0.weight[:, :64]     \\
    rank 1  embed, block.0.weight[:, 64:]      >   on rank 0: {"embed": ..., "block.0.weight": ..., "head": ...}
    rank 2  head                              /

Every rank of a replica sends what it counts (of several copies the first one) together with its row of the layout
table, and the replica's first rank puts it where the placement says. Between two steps, and after `sync.finish()`: the
weights must be there. Cost: each parameter's bytes once, to one rank, which needs room for the whole model.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist.comm import Mesh
from minidist.comm.texts import gather_bytes
from minidist.nn.flat import Group
from minidist.nn.placement import Placement
from minidist.sync.clipping import counted_here


def whole_weights(mesh: Mesh, groups: Sequence[Group]) -> dict[str, np.ndarray] | None:
    """Give the first rank of each replica all parameters by name, as one process would have them; the others None."""
    replica = mesh.replica()
    rows: list[list[Any]] = []
    parts: list[bytes] = []
    for group in groups:
        if counted_here(mesh, group):
            for entry, parameter in zip(group.layout, group.parameters, strict=True):
                spread = entry.placement or Placement(entry.shape)
                indices = None if spread.indices is None else spread.indices.tolist()
                rows.append([entry.name, group.dtype.str, spread.shape, spread.dim, indices])
                parts.append(parameter.data.tobytes())
    table = gather_bytes(replica, json.dumps(rows).encode())
    weights = gather_bytes(replica, b"".join(parts))
    if table is None or weights is None:
        return None
    whole: dict[str, np.ndarray] = {}
    for text, data in zip(table, weights, strict=True):
        offset = 0
        for name, dtype, shape, dim, indices in json.loads(text):
            spread = Placement(tuple(shape), dim, None if indices is None else np.array(indices))
            count = int(np.prod(spread.here))
            part = np.frombuffer(data, dtype, count, offset).reshape(spread.here)
            offset += part.nbytes
            spread.put(part, whole.setdefault(name, np.empty(spread.shape, dtype)))
    return whole
