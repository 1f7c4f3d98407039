"""What the tests of figures share."""

import pytest
from tables import SHAPES

import lab


@pytest.fixture(scope="session")
def measured():
    return lab.compare("square", shapes=SHAPES, versions="all", rivals=["eager"])
