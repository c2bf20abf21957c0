"""Write down what one rank does, while it does it: computations, layers, and through its followers all communication.

    recorder = Recorder(comm)                            before communicators are split, so that all are followed
    recorder.mark(replica, "forward", "forward", "microbatch")
    with recorder:                                       on all ranks together: compares their clocks, and begins
        ...                                              training
    timeline = gather(recorder)                          on all ranks; rank 0 gets the whole

What is followed is *wrapped on the object*: `replica.forward` becomes a function that looks at the clock, calls the
real one, looks again, and appends one plain tuple; when the recording ends the wrapper goes. So nothing is in the way
of a run that is not recorded, and no module knows of any recording.

A rank's main track has spans that lie in one another as the calls do; at each moment it does what the innermost says:

    | step 3                                                          |
    | forward            | backward                       |  | update  |        compute: what is left of the step
    | layers.0 | layers.1| layers.1      | layers.0       |
                                            | all_reduce |                     communication, and idle in it

Looking and writing takes some 2 us a time, up to a quarter of a small model's step. So only the first STEPS steps
are written down; then the wrappers go, and bytes alone are counted to the end. Of very long steps the last MOST records
are kept. Read next: `operations.py`.
"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from minidist.autograd import tape
from minidist.autograd.backward import newest_first
from minidist.comm import Communicator
from minidist.comm.channel import Channel
from minidist.trace.clocks import Moment, compare_clocks
from minidist.trace.messages import Messages
from minidist.trace.operations import Operations

STEPS = 10
MOST = 40_000  # records of each sort
MEMORY_EVERY = (
    2e-3  # seconds at least between two looks at this process's memory, which take some microseconds
)

# (kind, name, start, stop, step, microbatch, chunk, layer, bytes, peer): a Span without its rank
Row = tuple[str, str, float, float, int | None, int | None, int | None, str | None, int | None, int | None]


class Recorder:
    """What one rank has done. `clock` gives seconds that never go back, on every rank from an origin of its own."""

    def __init__(
        self,
        comm: Communicator,
        steps: int = STEPS,
        most: int = MOST,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.comm, self.steps, self.most, self.clock = comm, steps, most, clock
        self.spans: deque[Row] = deque(maxlen=most)
        self.flights: deque[Row] = deque(
            maxlen=most
        )  # operations that went on while the rank did other things
        self.memory: deque[tuple[float, int]] = deque(maxlen=most)
        self.begins: list[float] = []  # when each step began
        self.moments: list[Moment] = []  # before and after: this clock compared with rank 0's
        self.began = self.ended = 0.0
        # Where the rank is.
        self.step: int | None = None
        self.microbatch: int | None = None
        self.chunk: int | None = None
        self.layer: str | None = None
        self._ranges: list[
            tuple[int, int, str]
        ] = []  # (first node, one after the last, layer) of this step's forwards
        self._resident = _resident_memory()
        self._look_again = -math.inf
        self._wrapped: list[tuple[Any, str, Any]] = []
        self._before: list[tuple[Any, str, Any]] = []  # what stood there
        self.messages = Messages(comm.size, most, clock)
        self.operations = Operations(self)
        comm.new_channel = self.messages.channel

    def __enter__(self) -> Recorder:
        """Compare clocks, and begin; a collective."""
        self.moments.append(compare_clocks(self.comm, self.clock))
        for owner, name, wrapper in self._wrapped:
            self._before.append((owner, name, _own(owner, name)))
            setattr(owner, name, wrapper)
        self.messages.begin()
        self.began = self.clock()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop: from here on nothing is written down."""
        self._write_no_more()
        self.messages.on = False
        self.comm.new_channel = Channel

    def _write_no_more(self) -> None:
        """Take the wrappers away; bytes are still counted."""
        if not self._wrapped:
            return
        self.ended = self.clock()
        self.messages.noting, self.messages.over = False, True
        for owner, name, own in reversed(self._before):
            if own is not None:
                setattr(owner, name, own)
            elif _own(owner, name) is not None:
                delattr(owner, name)
        self._before.clear()
        self._wrapped.clear()

    def wrap(self, owner: Any, name: str, wrapper: Any) -> None:
        """Let owner.name be `wrapper`, as long as this records."""
        self._wrapped.append((owner, name, wrapper))

    def where(self) -> tuple[int | None, int | None, int | None, str | None]:
        """Give (step, microbatch, chunk, layer)."""
        return self.step, self.microbatch, self.chunk, self.layer

    def mark(self, owner: Any, method: str, kind: str, *says: str) -> None:
        """Write down each call of a method. says: what its first arguments tell, "microbatch" and maybe "chunk"."""
        inner, clock, spans = getattr(owner, method), self.clock, self.spans

        def marked(*arguments: Any, **options: Any) -> Any:
            outer = self.microbatch, self.chunk
            if says:
                self.microbatch, self.chunk = arguments[0], arguments[1] if len(says) > 1 else None
            began = clock()
            result = inner(*arguments, **options)
            now = clock()
            spans.append((kind, kind, began, now, self.step, self.microbatch, self.chunk, None, None, None))
            if now > self._look_again:
                self._look_at_memory(now)
            self.microbatch, self.chunk = outer
            return result

        self.wrap(owner, method, marked)

    def mark_steps(self, owner: Any, method: str, times: int = 1) -> None:
        """Let a new step begin with each call of a method, or with so many calls."""
        inner, calls = getattr(owner, method), count()

        def marked(*arguments: Any, **options: Any) -> Any:
            if next(calls) % times == 0:
                if self.step == self.steps:
                    self._write_no_more()
                else:
                    self.begins.append(self.clock())
                    self.step = len(self.begins)
                    self._ranges.clear()
            return inner(*arguments, **options)

        self.wrap(owner, method, marked)

    def mark_messages(self, owner: Any, method: str) -> None:
        """Hear, of a method that is asked just before each operation begins, for which microbatch it will be."""
        inner = getattr(owner, method)

        def marked(message: Any) -> Any:
            self.operations.microbatch = message.microbatch
            return inner(message)

        self.wrap(owner, method, marked)

    def mark_layer(self, module: Any, name: str) -> None:
        """Write down each forward of a module, and which nodes of the tape it made, for its backward."""
        inner, clock = module.forward, self.clock

        def forward(*inputs: Any, **options: Any) -> Any:
            outer, self.layer = self.layer, name
            first, began = tape.now(), clock()
            result = inner(*inputs, **options)
            self.spans.append(
                ("forward", name, began, clock(), self.step, self.microbatch, self.chunk, name, None, None)
            )
            self._ranges.append((first, tape.now(), name))
            self.layer = outer
            return result

        self.wrap(module, "forward", forward)

    def mark_walks(self, replica: Any) -> None:
        """Write down when backward passes through which layer: it takes nodes newest first, and ticks after each."""
        inner, clock = replica.walk, self.clock

        def walk(root: Any, *arguments: Any, tick: Callable[[], None], **options: Any) -> Any:
            numbers = [] if root.node is None else [node.number for node in newest_first(root.node)]
            times = [clock()]

            def ticking() -> None:
                tick()
                times.append(clock())

            result = inner(root, *arguments, tick=ticking, **options)
            self._through_layers(numbers, times)
            return result

        self.wrap(replica, "walk", walk)

    def _look_at_memory(self, now: float) -> None:
        self._look_again = now + MEMORY_EVERY
        if self._resident is not None:
            self.memory.append((now, self._resident()))

    def _through_layers(self, numbers: list[int], times: list[float]) -> None:
        """Join the nodes of one layer that backward has taken one after another, and write the layer down."""
        firsts = [first for first, _, _ in self._ranges]
        layer, began, low, high = None, times[0], -1, -1
        for place, number in enumerate([*numbers, -1]):
            if low <= number < high:
                continue
            now = times[place] if place < len(times) else times[-1]
            if layer is not None:
                where = self.step, self.microbatch, self.chunk
                self.spans.append(("backward", layer, began, now, *where, layer, None, None))
            index = bisect_right(firsts, number) - 1
            layer, began, low, high = None, now, number, number + 1
            if index >= 0 and number < self._ranges[index][1]:
                low, high, layer = self._ranges[index]


def _own(owner: Any, name: str) -> Any:
    """Give what the object itself has by this name; None if it has it of its class.

    Not by vars(owner): Python would keep the object's attributes in a slower way from then on.
    """
    found = getattr(owner, name)
    return None if getattr(found, "__func__", found) is getattr(type(owner), name, None) else found


def _resident_memory() -> Callable[[], int] | None:
    """Give a function that says how many bytes of memory this process has; None where nobody tells."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return None
    page = os.sysconf("SC_PAGESIZE")
    return lambda: int(os.pread(file, 64, 0).split()[1]) * page
