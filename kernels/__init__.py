"""The ops, each three files side by side.

NAME.cu holds the kernels, NAME.cpp the binding, NAME.py the gradients and the public function.
`from kernels.square import square` compiles the op at the first import; later ones use the cache.
Every op takes `version=`, a name from `VERSIONS` in NAME.py, from the naive kernel to the best.
"""


def version_number(version: str, versions: tuple[str, ...]) -> int:
    """The number by which the launcher knows a version. Raises ValueError for an unknown name."""
    if version not in versions:
        raise ValueError(f"version is {version!r}; wanted is one of {', '.join(versions)}")
    return versions.index(version)
