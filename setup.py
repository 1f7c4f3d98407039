"""Kernel Playground is used from a clone: this refuses wheels of it, all but editable ones."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class RefusedWheel(bdist_wheel):
    def run(self) -> None:
        raise SystemExit(
            "Kernel Playground is used from a clone, whose kernels and notebooks you edit; as a"
            " wheel it would put names as common as lab and kernels among your packages, without"
            " the notebooks. Clone it and run `make lab`, or `pip install --editable .` in the"
            " clone."
        )


setup(cmdclass={"bdist_wheel": RefusedWheel})
