"""Translates inline PTX to C++: replaces each `asm` statement for a C++ compiler.

    asm volatile("{ .reg .pred p; setp.ne.b32 p, %1, 0; @p mov.b32 %0, 7; }" : "+r"(x) : "r"(n));

    do {
        auto&& simulator_lvalue0 = (x);
        uint32_t simulator_1 = ::simulator::__ptx::__ptx_bits<uint32_t>(n);
        uint32_t simulator_0 = ::simulator::__ptx::__ptx_bits<uint32_t>(simulator_lvalue0);
        bool simulator_p;
        simulator_p = ::simulator::__ptx::__ptx_compare_ne<
            ::simulator::__ptx::__ptx_u32>(simulator_1, 0);
        if (simulator_p) simulator_0 = 7;
        ::simulator::__ptx::__ptx_put(simulator_lvalue0, simulator_0);
    } while (0);

`macros` expands macros that compose PTX, `statement` finds the parts of a statement, `language`
reads PTX, `instructions` knows what each instruction becomes, and `translate` assembles the C++.
The functions that this C++ calls are in include/simulator/ptx.
"""

from simulator.ptx.macros import Macros
from simulator.ptx.translate import Refused, Translation, translations

__all__ = ["Macros", "Refused", "Translation", "translations"]
