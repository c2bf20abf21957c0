"""How fast is this engine here? `python -m minidist.bench [kernels|step|comm]` measures, and prints a table.

    kernels     each kernel beside NumPy written well
    step        a whole training step beside its matrix products alone, and beside NumPy by hand
    comm        all-reduce over 2 ranks beside MPI's own

A time means little on its own: machines differ, and one machine is not the same a minute later. So whatever is
compared runs in turn, in one process, on one core, and what counts is the ratio of the medians. How near a row is to
what the processor can do at all is told by its *roof*: the time that its arithmetic takes at the peak rate, or its
bytes at the rate of a copy, whichever is longer (Williams, Waterman & Patterson, "Roofline", CACM 2009).

Read next: `measure.py`.
"""
