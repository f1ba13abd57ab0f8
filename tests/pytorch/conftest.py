"""Settings for the tests of recollect.torch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors here are tiny: a second thread only waits for the first, and workers share the cores."""
    torch.set_num_threads(1)
