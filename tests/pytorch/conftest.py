"""Settings for the tests of recollect.torch."""

import importlib.util

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors here are tiny: a second thread only waits for the first, and workers share the cores."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
