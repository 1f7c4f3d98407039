"""reference.py, imported only by code that concerns the project's own ops.

A user's repository may have another file of that name beside its kernels.
"""

from types import ModuleType

import jitload


def truth() -> ModuleType:
    """The module. Raises ImportError if another module of this name is found first."""
    import reference

    if not hasattr(reference, "OPS"):
        raise ImportError(
            f"{reference.__file__} is found as `reference`, and is not the playground's, which is"
            f" {jitload.KERNELS.parent / 'reference.py'}: ask for its ops in another folder. Calls"
            " of kernels of your own do not need it"
        )
    return reference
