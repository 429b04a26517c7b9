"""The engine's tests run the Triton kernels on the GPU where there is one, and in Triton's interpreter elsewhere."""

import os

import pytest
import torch

# Read by Triton when it is imported, so it is set before any test module is.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
# What Triton 3.9 does unless told; named because it warns otherwise, and because the default will change.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
