"""The simulator: plays every rank's acts on a cluster, event by event, and writes down who did what when.

        rank 0    program      compute | compute ........ | wait | update
                  all_reduce             send, receive  send, receive      goes on beside it

Nothing is computed or sent; `events.py` lets time pass. A collective is the very generator of `comm/all_reduce.py`
that real ranks run, on a channel that only notes the sizes: each of its messages is an event, and its bytes are right
because it is the same code.

A message occupies its sender's and its receiver's port for bytes / bandwidth, one after another where a port is asked
for twice, and is there a latency later. On one machine each rank has a port; machines have as many as network cards.
Where the cluster has no `background`, a rank moves its collectives only between two computations and while it waits.

Not in it: what adding up costs, the operating system, ranks that are slower than others.
Read next: `minidist/simulate/program.py`, which makes the acts of a training step.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from minidist.comm.channel import Channel
from minidist.plan import cost, messages
from minidist.plan.acts import Act, Collect, Compute, Fetch, Hold, Receive, Send, Wait
from minidist.plan.cluster import Cluster
from minidist.plan.events import Events, Pending, Steps, Strand
from minidist.trace.timeline import FLIGHT, Flow, Span, Timeline

MOST_RANKS = 4096  # of a timeline: its table of who sent how much to whom has a place for each pair


class Player(Events):
    """Let time pass. `play` below is all that others need."""

    def __init__(self, cluster: Cluster, ranks: int, played: Iterable[int], flows: bool = True) -> None:
        super().__init__(ranks, ticks=not cluster.background)
        self.cluster, self.flows, self.played = cluster, flows, set(played)
        self.at_once = replace(  # what of a message is not latency
            cluster,
            within=replace(cluster.within, latency=0.0),
            between=replace(cluster.between, latency=0.0),
        )
        self.timeline = Timeline(ranks if ranks <= MOST_RANKS else len(self.played))
        self.sent: Counter[tuple[int, int]] = Counter()  # bytes, by source and destination
        self.nodes = cluster.places(ranks)
        self.crowding = cluster.crowding(ranks)
        self.free: dict[Hashable, float] = {}  # from when on each port is free
        self.arrivals: dict[Hashable, deque[float]] = {}  # of messages that nobody has asked for yet
        self.expected: dict[Hashable, deque[Pending]] = {}
        self.meetings: dict[Hashable, list[Pending]] = {}
        self.held = [0] * ranks

    # ---- messages

    def send(self, strand: Strand, dest: int, nbytes: int, tag: Hashable) -> Pending:
        """Start a message; complete when it has left."""
        source, began = strand.rank, strand.clock
        here, there = self.nodes[source], self.nodes[dest]
        if here == there:
            link, out, into = self.cluster.within, (source, "out"), (dest, "into")
        else:
            link, cards = self.cluster.between, self.cluster.cards
            out, into = (here, "card out", source % cards), (there, "card into", dest % cards)  # type: ignore[assignment]
        start = max(began, self.free.get(out, 0.0), self.free.get(into, 0.0))
        left = start + nbytes / link.bandwidth
        self.free[out] = self.free[into] = left
        arrival = left + link.latency
        self.sent[source, dest] += nbytes
        if self.flows:
            self.timeline.flows.append(Flow(source, dest, began, arrival, nbytes, messages.name_of(tag)))
        key = source, dest, tag
        if self.expected.get(key):
            self.complete(self.expected[key].popleft(), arrival)
        else:
            self.arrivals.setdefault(key, deque()).append(arrival)
        return Pending(left)

    def receive(self, strand: Strand, source: int, tag: Hashable) -> Pending:
        """Start to wait for a message."""
        key = source, strand.rank, tag
        if self.arrivals.get(key):
            return Pending(max(strand.clock, self.arrivals[key].popleft()))
        pending = Pending(what=f"{messages.name_of(tag)} from rank {source}")
        self.expected.setdefault(key, deque()).append(pending)
        return pending

    def meet(
        self,
        strand: Strand,
        members: int,
        tag: Hashable,
        seconds: float,
        port: Hashable = None,
        keeps: float = 0.0,
    ) -> Pending:
        """Wait until so many strands have come, then until the port is free, then so many seconds; keep it `keeps`."""
        here = self.meetings.setdefault(tag, [])
        here.append(Pending(what=f"the others at {messages.name_of(tag)}"))
        if len(here) == members:
            began = max(strand.clock, self.free.get(port, 0.0))
            if port is not None:
                self.free[port] = began + keeps
            for pending in self.meetings.pop(tag):
                if pending is not here[-1]:
                    self.complete(pending, began + seconds)
            here[-1].at = began + seconds
        return here[-1]

    def after(self, strand: Strand, seconds: float) -> Pending:
        """Wait for so long; where messages move on a rank's own core, it computes nothing meanwhile."""
        if not self.cluster.background:
            self.busy[strand.rank] = max(self.busy[strand.rank], strand.clock + seconds)
        return Pending(strand.clock + seconds)

    # ---- what a rank does

    def program(self, rank: int, acts: Iterable[Act], strand: Strand) -> Steps:
        """Take the steps of a rank's own program."""
        collects: dict[Hashable, tuple[Strand, Collect]] = {}
        spans, sends = self.timeline.spans, []
        for act in acts:
            began = strand.clock
            match act:
                case Compute(kind, name, seconds, microbatch, chunk, layer):
                    self.busy[rank] = began + seconds * self.crowding
                    yield (Pending(self.busy[rank]),)
                    place = {"microbatch": microbatch, "chunk": chunk, "layer": layer}
                    spans.append(Span(rank, kind, name, began, strand.clock, **place))  # type: ignore[arg-type]
                case Send(dest, nbytes, tag):
                    sends.append(self.send(strand, dest, nbytes, tag))
                case Receive(source, tag):
                    yield (self.receive(strand, source, tag),)
                    self.idle(strand, began, f"wait for {messages.name_of(tag)}", source)
                case Collect():
                    beside = self.start(rank, began, self.collective(rank, act))
                    collects[act.tag] = beside, act
                case Wait(tag):
                    beside, started = collects.pop(tag)
                    yield (beside.done,)
                    self.idle(strand, began, f"wait for {started.operation}")
                case Fetch():
                    yield self.fetch(strand, act)
                    self.idle(strand, began, f"wait for {messages.name_of(act.tag)}")
                case Hold(nbytes):
                    self.held[rank] += nbytes
                    self.timeline.memory[rank].append((began, self.held[rank]))
        began = strand.clock
        yield sends
        yield [beside.done for beside, _ in collects.values()]
        self.idle(strand, began, "wait for what is on its way")

    def fetch(self, strand: Strand, act: Fetch) -> list[Pending]:
        """Send the questions, and begin a strand that answers on each other rank."""
        rank, answers = strand.rank, []
        for member, nbytes in zip(act.members, act.pieces, strict=True):
            if member == rank:
                continue
            if member in self.played:
                self.send(strand, member, act.question, (act.tag, "question"))
                self.start(member, strand.clock, partial(self.answer, rank, nbytes, act.tag))
                answers.append(self.receive(strand, member, act.tag))
            else:  # it fetches from this rank what this one fetches from it
                self.sent[rank, member] += act.question + act.pieces[act.members.index(rank)]
        if len(answers) + 1 < len(act.members):
            nodes = [self.nodes[member] for member in act.members]
            gather = Collect("all_gather", act.members, sum(act.pieces), 1, act.tag)
            answers.append(Pending(strand.clock + cost.seconds(gather, self.cluster, nodes)))
        return answers

    def answer(self, asker: int, nbytes: int, tag: Hashable, strand: Strand) -> Steps:
        """Answer a question when it has come."""
        yield (self.receive(strand, asker, (tag, "question")),)
        self.send(strand, asker, nbytes, tag)

    def idle(self, strand: Strand, began: float, name: str, peer: int | None = None) -> None:
        """Write down that a rank waited."""
        if strand.clock > began:
            self.timeline.spans.append(Span(strand.rank, "idle", name, began, strand.clock, peer=peer))

    def collective(self, rank: int, act: Collect) -> Callable[[Strand], Steps]:
        """Give the steps of a rank's part in a collective."""

        def steps(strand: Strand) -> Steps:
            began, here = strand.clock, self.played.intersection(act.members)
            comm = messages.Members(self, strand, act, self.nodes)
            channel = Channel(cast(Any, comm), cast(Any, act.tag), "user")
            if len(act.members) == len(here) > 1:
                yield from messages.steps_of(act, channel)
            elif len(act.members) > 1:
                for dest, nbytes in messages.sent_by(act, rank, comm.nodes):
                    self.sent[rank, dest] += nbytes
                # Two at once among the same ranks share their links: the bytes of one after those of the other.
                seconds = cost.seconds(act, self.cluster, comm.nodes)
                keeps = cost.seconds(act, self.at_once, comm.nodes)
                yield (self.meet(strand, len(here), act.tag, seconds, act.members, keeps),)
            nbytes = act.n * act.itemsize
            span = Span(rank, FLIGHT, act.operation, began, strand.clock, bytes=nbytes)
            self.timeline.spans.append(span)

        return steps


def play(
    programs: Mapping[int, Iterable[Act]], cluster: Cluster, ranks: int | None = None, flows: bool = True
) -> Timeline:
    """Play the acts of each rank on a cluster; ValueError if they cannot come to their end.

    ranks: how many there are, if programs are only of the first ones. A collective that has members without a program
    takes the time of its closed formula, from when the others have come. The timeline is of all ranks, of more than
    MOST_RANKS of those with a program; facts["sent"] are the bytes that each of its ranks sends, to whomever.
    flows: whether to keep every message in the timeline; it is faster without.
    """
    player = Player(cluster, ranks or len(programs), programs, flows)
    for rank, acts in programs.items():
        player.start(rank, 0.0, partial(player.program, rank, acts), own=True)
    player.run()
    timeline = player.timeline
    totals = [0] * timeline.ranks
    for (source, dest), nbytes in player.sent.items():
        totals[source] += nbytes
        if dest < timeline.ranks:
            timeline.sent[source, dest] = nbytes
    timeline.facts.update(simulated=True, cluster=cluster.name, ranks=len(player.nodes), sent=totals)
    return timeline
