"""The package's kernels open, on every device that is here, and offer what they should."""

import importlib
import json
from pathlib import Path

import pytest
import torch

import PACKAGE
from PACKAGE.libraries import opened, why_no_gpu

PLAN = json.loads((Path(PACKAGE.__file__).parent / "csrc/kernels.json").read_text())
NAMES = [kernel["name"] for kernel in PLAN["kernels"]]


@pytest.mark.parametrize("name", NAMES)
def test_it_offers_its_functions(name):
    assert importlib.import_module(f"PACKAGE.ops.{name}")
    for each in PACKAGE.__all__:
        assert getattr(PACKAGE, each) is not None


@pytest.mark.parametrize("name", NAMES)
def test_its_parts_are_opened(name):
    parts = []
    opened(name, parts.append)
    has_gpu_part = torch.version.cuda is not None and not why_no_gpu(name)
    assert len(parts) == 1 + has_gpu_part
