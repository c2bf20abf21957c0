"""Find silent mistakes in a training step: run it on some ranks and on one, and name the first tensor that differs.

    from minidist import check

    def build(comm):                             # the same on every rank: model, optimizer, whatever the step needs
        model = MLP([64, 32, 10], seed=0)
        return model, SGD(flatten(model), lr=0.1)

    def step(comm, state, inputs, labels):       # the whole global batch comes in; who takes which rows is yours
        model, optimizer = state
        mine = loader.share(np.arange(len(inputs)), comm.rank, comm.size)
        ...                                      # forward, backward, communicate, update
        return loss                              # or a dict of numbers, or nothing

    check.run(build, step)                       # or: python -m minidist.check mystep.py --ranks 2,4

    step 1, rank 0, backward: the gradient of layers.1.bias differs from the one-process run
      gradients are 4.000 times the one-process gradients on every parameter: summed, not averaged?

The step is run for a batch that all ranks share evenly and for one that they cannot, and on two numbers of ranks: a
cause is named only where the numbers of all of them agree with it, else just the place. Weights that would be drawn
as zeros (biases) are drawn as small numbers, so that nothing is right by chance.

observe.py    runs the ranks               record.py, found.py, prepare.py   what a rank did
case.py       one rank and many            compare.py                        the first difference
evidence.py   how often examples count     causes*.py                        what explains a difference
report.py     how it is said               __main__.py                       the command

Read next: `record.py`.
"""

from minidist.check.observe import mean_cross_entropy
from minidist.check.report import Report
from minidist.check.run import run

__all__ = ["Report", "mean_cross_entropy", "run"]
