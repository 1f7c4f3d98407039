"""Which GPU architectures have an instruction, as ptxas 13.0 judges it.

Only instructions that some architecture from 9.0 on lacks are listed.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple


class Architecture(NamedTuple):
    """An architecture that a build is for: `Architecture(1000, "a")` is sm_100a.

    number: as in `__CUDA_ARCH__`. suffix: "a", "f" or "".
    """

    number: int
    suffix: str = ""

    @classmethod
    def of(cls, name: str) -> Architecture:
        """From a name of TORCH_CUDA_ARCH_LIST, as in "10.0a" or "9.0+PTX"."""
        major, minor, suffix = re.fullmatch(r"(\d+)\.(\d)([af]?)(?:\+PTX)?", name).groups()
        return cls(int(major) * 100 + int(minor) * 10, suffix)

    def __str__(self) -> str:
        return f"sm_{self.number // 10}{self.suffix}"

    def _has(self, wanted: str) -> bool:
        number, kind = int(wanted[:-1]) * 10, wanted[-1]
        if kind == "+":
            return self.number >= number
        if kind == "f":  # of this family, from this member on
            is_family = self.number // 100 == number // 100 and self.number >= number
            return is_family and self.suffix != ""
        return (self.number, self.suffix) == (number, kind)

    def lacks(self, mnemonic: str, operands: int) -> str:
        """Says why this architecture lacks an instruction; "" if it has it."""
        wanted = _wanted(mnemonic, operands)
        if not wanted or any(map(self._has, wanted.split())):
            return ""
        needs = ", ".join(_SHOWN.get(each, f"sm_{each}") for each in wanted.split())
        needs = " or ".join(needs.rsplit(", ", 1))
        is_tensor_memorys = mnemonic.startswith("tcgen05.") and self.number >= 1200
        because = f", because {self} has no tensor memory" if is_tensor_memorys else ""
        return f"{self} does not have {mnemonic}{because}: that needs {needs}"


_SHOWN = {
    "100f": "sm_100a, sm_103a",
    "103f": "sm_103a",
    "110f": "sm_110a",
    "120f": "sm_120a, sm_121a",
    "100+": "sm_100 and later",
}
_TENSOR_MEMORY = "100f 110f"
_ONE_OF_EACH = "100a 110a"
_ALL = "100f 110f 120f"

# The first pattern that is found in a mnemonic counts.
_LISTED = [
    (r"^wgmma\.", "90a"),
    (r"^setmaxnreg\.", f"90a {_ALL}"),
    (r"^tensormap\.replace\.", f"90a {_ALL}"),
    (r"^tcgen05\.mma.*kind::i8", _ONE_OF_EACH),
    (r"^tcgen05\.mma.*scale_vec::", "100a 103a 110a"),
    (r"^tcgen05\.shift", "100a 103a 110a"),
    (r"^tcgen05\.ld\.red", "103f 110f"),
    (r"^tcgen05\.", _TENSOR_MEMORY),
    (r"^mma\..*kind::", "120f"),
    (r"^cp\..*cta_group::", _TENSOR_MEMORY),
    (r"^cp\..*shared::cta\.global.*(?:gather4|im2col::w\.)", "100+"),
    (r"^cp\..*(?:gather4|scatter4|im2col::w)", _TENSOR_MEMORY),
    (r"^cp\..*cp_mask", "100+"),
    (r"^clusterlaunchcontrol\..*cluster::all", _ALL),
    (r"^clusterlaunchcontrol\.", "100+"),
    (r"^(?:ldmatrix|stmatrix).*\.(?:b8|b8x16)\b", _ALL),
    (r"^redux\..*f32", "100f"),
    (r"^cvt\.rs\.", "100a 103a"),
    (r"^cvt\..*(?:e2m1x2|e2m3x2|e3m2x2|ue8m0x2)", _ALL),
    (r"^cvt\.r[nz]\.(?=.*satfinite).*tf32", "100+"),
    (r"^(?:add|sub|mul|fma)\..*f32x2", "100+"),
    (r"^(?:add|sub|fma)\..*f32\.b?f16$", "100+"),
    (r"^(?:ld|st)\..*v8\.", "100+"),
    (r"^(?:ld|st)\..*v4\.[busf]64", "100+"),
    (r"^st\.bulk", "100+"),
]


@cache
def _wanted(mnemonic: str, operands: int) -> str:
    if re.match(r"(?:min|max)\..*f32$", mnemonic) and operands == 4:
        return "100+"
    return next((wanted for pattern, wanted in _LISTED if re.search(pattern, mnemonic)), "")
