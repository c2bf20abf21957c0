"""Numbers that are not finite: found in the same step by all ranks, and the first of them named."""

import contextlib

import numpy as np
import pytest

from minidist import data
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.sync.parameter_server import Link
from minidist.sync.server import Server
from minidist.train import mode_options, nonfinite
from minidist.train.arrangement import arrange
from minidist.train.keeping import Keeping
from minidist.train.loop import train
from minidist.train.options import parse
from minidist.train.setup import build_optimizer, set_up

RANK, STEP = 1, 3
LAYER = "layers.1.weight"


def spoil_gradient(setup):
    """Put three nan into one gradient of one rank, before it is sent."""
    (parameter,) = [p for name, p in setup.model.named_parameters() if name == LAYER]
    ready, step = setup.replica.ready, 0

    def ready_with_nan(reported):
        nonlocal step
        step += reported is parameter
        if reported is parameter and step == STEP:
            parameter.grad[0, :3] = np.nan
        ready(reported)

    setup.replica.ready = ready_with_nan


def before_step(setup, spoil):
    """Call spoil(batch) before the forward of one step."""
    compute, step = setup.replica.forward_backward, 0

    def compute_spoilt(batch):
        nonlocal step
        step += 1
        if step == STEP:
            spoil(batch)
        return compute(batch)

    setup.replica.forward_backward = compute_spoilt


def spoil_inputs(setup):
    def spoil(batch):
        batch.inputs[0, 0, 0, 0] = np.inf  # the rank's own copy

    before_step(setup, spoil)


def spoil_weights(setup):
    def spoil(batch):
        setup.groups[0].weights[-1] = np.nan

    before_step(setup, spoil)


def spoil_output(setup):
    def spoil(batch):
        batch.inputs[...] *= np.float32(3e38)

    before_step(setup, spoil)


def spoil_sums(setup):
    def spoil(batch):
        setup.groups[0].weights[...] = 3e38  # finite themselves

    before_step(setup, spoil)


def sentences(spoil, *arguments):
    """Train on 3 ranks, of which one is spoilt; give what each rank raised."""
    said = {}

    def one_rank(comm):
        options = parse(["--epochs", "1", "--hidden", "16,16", "--batch", "60", "--quiet", *arguments])
        arrangement = arrange(options, comm.size)
        mode_options.settle(options, arrangement)
        dataset = data.load("digits", None)
        link = Link(comm, arrangement.workers) if arrangement.servers else None
        try:
            if link and link.serves:
                Server(link, build_optimizer(options, [])).run()
                return
            setup = set_up(options, dataset, link.peers if link else comm, arrangement, link)
            if comm.rank == RANK:
                spoil(setup)
            with np.errstate(all="ignore"):
                train(options, dataset, setup, Keeping(options, arrangement, dataset, comm, ""))
        except UserError as error:
            said[comm.rank] = str(error)
            if not setup.sync.lockstep and setup.mesh.replica().size == 1:  # the others wait for this rank
                raise

    with contextlib.suppress(UserError):
        run_ranks(one_rank, 3)
    return said


@pytest.mark.parametrize(
    ("mode", "spoil", "first"),
    [
        (
            [],
            spoil_gradient,
            f"the gradient of {LAYER} (3 nan among 256 numbers), in the sum over all replicas",
        ),
        (["--zero", "2"], spoil_gradient, f"the gradient of {LAYER} ("),
        ([], spoil_inputs, "the inputs (1 inf among 1,280 numbers), on rank 1"),
        ([], spoil_weights, "the weights layers.0.weight (1 nan among 1,024 numbers), on rank 1"),
        ([], spoil_output, "the output of layers.0 ("),
        (["--zero", "3"], spoil_output, "the output of layers.0 ("),
        (["--mode", "model"], spoil_inputs, "the inputs (1 inf among 3,840 numbers), on rank 1"),
        (
            ["--mode", "model"],
            spoil_weights,
            "the weights layers.0.weight (1 nan among 320 numbers), on rank 1",
        ),
        (["--mode", "model"], spoil_output, "the output of layers.0 ("),
        (["--mode", "model"], spoil_gradient, f"the gradient of {LAYER} (3 nan among 80 numbers), on rank 1"),
        (["--mode", "pipeline"], spoil_weights, f"the weights {LAYER} (1 nan among 256 numbers), on rank 1"),
        (["--mode", "pipeline"], spoil_sums, "the output of layers.1 ("),
        (
            ["--mode", "pipeline"],
            spoil_gradient,
            f"the gradient of {LAYER} (3 nan among 256 numbers), on rank 1",
        ),
        (
            ["--mode", "pipeline", "--schedule", "pipedream"],
            spoil_sums,
            "the loss of microbatch 0, on rank 2",
        ),
        (["--mesh", "tensor=3", "--sync", "averaging"], spoil_output, "the output of layers.0 ("),
    ],
)
def test_all_ranks_stop_in_the_same_step_and_name_the_first_tensor(mode, spoil, first):
    said = sentences(spoil, *mode)
    assert len(said) == 3
    assert len(set(said.values())) == 1
    assert f"in step {STEP}; the first that is not finite: {first}" in said[0]


@pytest.mark.parametrize(
    "mode", [["--mode", "averaging"], ["--mode", "parameter-server", "--servers", "1", "--slack", "1"]]
)
def test_a_replica_that_steps_on_its_own_says_it_before_its_gradient_reaches_the_others(mode):
    said = sentences(spoil_inputs, *mode)
    assert list(said) == [RANK]
    assert "the inputs (1 inf among" in said[RANK]


@pytest.mark.ranks(3, transports=("threads",))
def test_what_ranks_have_found_may_be_as_long_as_names_are(comm):
    found = (comm.rank, "the weights " + "läyers." * 200) if comm.rank else None
    assert nonfinite._gather(comm, found) == [
        ((rank, "the weights " + "läyers." * 200), rank) for rank in (1, 2)
    ]
