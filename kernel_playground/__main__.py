"""`python -m kernel_playground`, which is the command kernel-playground."""

from kernel_playground.commands import script

if __name__ == "__main__":
    script()
