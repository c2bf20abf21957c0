"""Which kernels are used: chosen at load time, by the environment or at run time."""

import os
import subprocess
import sys

import numpy as np
import pytest

from minidist import _kernels as kernels
from minidist.errors import UserError


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    inherited = {name: value for name, value in os.environ.items() if name != "MINIDIST_KERNELS"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_numpy_is_always_available_and_last():
    assert kernels.available[-1] == "numpy"
    assert kernels.path in kernels.available


def test_use_switches_every_kernel_and_returns_the_path_before():
    before = kernels.path
    assert kernels.use("numpy") == before
    assert kernels.path == "numpy"
    assert kernels.matmul is kernels.reference.matmul
    assert kernels.use(before) == "numpy"
    assert kernels.path == before


def test_an_unknown_path_is_refused_with_the_choices():
    before = kernels.path
    with pytest.raises(UserError, match=r"'mmx' is not available here; choose one of: .*numpy"):
        kernels.use("mmx")
    assert kernels.path == before


@pytest.mark.parametrize("path", kernels.available)
def test_the_environment_forces_a_path(path):
    done = run("from minidist import _kernels; print(_kernels.path)", MINIDIST_KERNELS=path)
    assert done.stdout.strip() == path


def test_a_wrong_name_in_the_environment_is_refused_with_the_choices():
    done = run("import minidist._kernels", MINIDIST_KERNELS="mmx")
    assert done.returncode != 0
    assert "'mmx' is not available here; choose one of: " in done.stderr


def test_without_the_compiled_module_numpy_stands_in_and_one_line_says_how_to_mend_it():
    done = run(
        "import sys; sys.modules['minidist._kernels.compiled'] = None\n"
        "from minidist import _kernels\n"
        "print(_kernels.path, _kernels.available); print(_kernels.why_numpy())"
    )
    first, line = done.stdout.splitlines()
    assert first == "numpy ('numpy',)"
    for remedy in (
        "apt install build-essential python3-dev",
        "xcode-select --install",
        "conda install c-compiler",
    ):
        assert remedy in line
    assert "pip install" in line


def test_every_kernel_has_a_twin_of_the_same_signature():
    import inspect

    for name in kernels.KERNELS:
        twin = list(inspect.signature(getattr(kernels.reference, name)).parameters.values())
        for path in kernels.available:
            before = kernels.use(path)
            parameters = list(inspect.signature(getattr(kernels, name)).parameters.values())
            kernels.use(before)
            assert [(p.name, p.default) for p in parameters] == [(p.name, p.default) for p in twin], name


def test_arrays_of_many_dims_are_taken():
    x = np.ones((1, 2, 1, 2, 1, 2, 1, 2, 1, 2))
    assert kernels.sum(x) == 32
    assert kernels.gelu(x).shape == x.shape
    assert kernels.matmul(x.swapaxes(-1, -2), x).shape == (1, 2, 1, 2, 1, 2, 1, 2, 2, 2)
