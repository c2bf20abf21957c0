"""What a parameter server does in a step, as acts: it hears all workers, updates, and answers all, or each in turn.

Real servers take notes in the order in which they come (`minidist/sync/server.py`); here they take them in the order of
the workers, which among equal ones is the same.
"""

from collections.abc import Iterator, Sequence

from minidist.plan.acts import Act, Collect, Compute, Receive, Send, Wait
from minidist.plan.syncs import ANSWER
from minidist.simulate.costs import Costs
from minidist.simulate.imagine import Imagination
from minidist.sync.parameter_server import ParameterServer
from minidist.train.setup import Setup


def serving(job: Imagination, setups: list[Setup], server: int, costs: Costs, steps: int) -> Iterator[Act]:
    """Give the acts of a server."""
    parts = []
    for setup in setups:
        assert isinstance(setup.sync, ParameterServer)
        own = setup.sync.parts[server]
        parts.append([(part.stop - part.start) * bucket.group.dtype.itemsize for bucket, part in own])
    lockstep, slots = setups[0].sync.lockstep, {"sgd": 1, "adamw": 2}[job.options.optimizer]
    members = tuple(range(job.arrangement.workers, job.ranks))
    return serve(parts, job.arrangement.axes["data"], steps, costs, slots, members, lockstep)


def serve(
    parts: Sequence[Sequence[int]],
    replicas: int,
    steps: int,
    costs: Costs,
    slots: int,
    servers: tuple[int, ...],
    lockstep: bool,
) -> Iterator[Act]:
    """Give a server's acts. parts: of each worker, the bytes of what is here of each of its buckets.

    Without lockstep it takes the workers in turn: among equal ones that is the order in which they come.
    """
    everybody = range(len(parts))

    def heard(worker: int, step: int) -> Iterator[Act]:
        for number in range(len(parts[worker])):
            yield Receive(worker, ("note", step, number))
            yield Receive(worker, ("part", step, number))
        yield Receive(worker, ("push", step))
        yield Receive(worker, ("pull", step))

    def updated(nbytes: int) -> Act:
        return Compute("update", "server", costs.update(nbytes, slots))

    def answered(worker: int, step: int) -> Iterator[Act]:
        yield Send(worker, ANSWER, ("version", step))
        for number, nbytes in enumerate(parts[worker]):
            yield Send(worker, nbytes, ("weights", step, number))

    for step in range(steps):
        if lockstep:
            for worker in everybody:
                yield from heard(worker, step)
            yield updated(sum(map(sum, parts)) // replicas)
            if len(servers) > 1:
                yield Collect("all_reduce", servers, 1, 8, ("norm", "servers", step))
                yield Wait(("norm", "servers", step))
            for worker in everybody:
                yield from answered(worker, step)
        else:
            for worker in everybody:
                yield from heard(worker, step)
                yield updated(sum(parts[worker]))
                yield from answered(worker, step)
