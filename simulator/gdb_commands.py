"""gdb commands for CUDA on the simulator; `python -m jitload debug` has gdb read this file.

break FILE:LINE [block X,Y,Z] [thread X,Y,Z] stops only there; print knows threadIdx, blockIdx,
blockDim and gridDim; values of __half and __nv_bfloat16 are numbers; a backtrace has no frames of
the simulator's. A failed assertion, a __trap and an access out of bounds stop.
"""

import re
import struct

import gdb

BUILT_INS = {
    "threadIdx": "simulator_thread_index",
    "blockIdx": "simulator_block_index",
    "blockDim": "simulator_block_extent",
    "gridDim": "simulator_grid_extent",
}
STOPS = ("simulator::fail_assertion", "simulator::trap", "simulator::fail", "simulator::stop_block")


def index(symbol):
    """A built-in variable, as (x, y, z)."""
    at = f"((unsigned*)&{symbol})"
    return tuple(int(gdb.parse_and_eval(f"{at}[{i}]")) for i in range(3))


def is_users(frame):
    """Whether a frame is in the user's sources."""
    file = frame.find_sal().symtab
    return bool(file) and not re.search(r"/simulator/|^/usr/|/python", file.filename)


class Here(gdb.Breakpoint):
    """A breakpoint's condition: one block, one thread index, or both, and the user's condition.

    It is not gdb's own condition, because gdb disables a conditional breakpoint whose library is
    not loaded yet.
    """

    def __init__(self, where, block, thread, condition=""):
        super().__init__(where)
        self.wanted = {"blockIdx": block, "threadIdx": thread}
        self.if_true = condition

    def stop(self):
        if any(at and index(BUILT_INS[name]) != at for name, at in self.wanted.items()):
            return False
        try:
            return not self.if_true or bool(gdb.parse_and_eval(self.if_true))
        except gdb.error as error:
            print(f"cannot evaluate the condition {self.if_true}: {error}")
            return True


class Break(gdb.Command):
    """break WHERE [block X[,Y[,Z]]] [thread X[,Y[,Z]]] [if CONDITION]"""

    def __init__(self):
        super().__init__("break", gdb.COMMAND_BREAKPOINTS, gdb.COMPLETE_LOCATION)

    def invoke(self, argument, from_tty):
        words, _, condition = re.sub(r"\s+", " ", argument).partition(" if ")
        at = {}
        for name in ("thread", "block"):
            found = re.search(rf" {name} (\d+(?:,\d+)*)", words)
            if found:
                numbers = tuple(map(int, found[1].split(",")))
                at[name] = (*numbers, 0, 0)[:3]
                words = words.replace(found[0], "")
        Here(words.strip(), at.get("block"), at.get("thread"), condition)


class Half:
    """Prints a __half or a __nv_bfloat16 as a number."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        bits = int(self.value["bits"])
        if "BFloat16" in str(self.value.type.strip_typedefs()):
            return f"{struct.unpack('<f', struct.pack('<I', bits << 16))[0]:g}"
        return f"{struct.unpack('<e', struct.pack('<H', bits))[0]:g}"


def printer(value):
    """For gdb's list of printers."""
    if re.match(r"simulator::Half<Simulator(BFloat16|Float16)>$", str(value.type.strip_typedefs())):
        return Half(value)
    return None


class WithoutSimulator:
    """A frame filter that shows only the user's frames."""

    name, priority, enabled = "simulator", 100, True

    def filter(self, frames):
        """The frames that are shown."""
        shown = []
        for frame in frames:
            if is_users(frame.inferior_frame()) and "::operator()" not in str(frame.function()):
                shown.append(frame)
        return iter(shown)


def stopped(event):
    """Prints the block and thread that stopped, and goes up to the user's frame."""
    if not isinstance(event, gdb.StopEvent):
        return
    frame = gdb.newest_frame()
    while frame and not is_users(frame):
        frame = frame.older()
    if frame is None:
        return
    try:
        if frame != gdb.newest_frame():
            frame.select()
            print(f"in {frame.name()} at line {frame.find_sal().line}")
        print(f"block {index(BUILT_INS['blockIdx'])}, thread {index(BUILT_INS['threadIdx'])}")
    except gdb.error:
        pass


def begin():
    """Registers all of the above in a session."""
    for setting in (
        "breakpoint pending on",
        "pagination off",
        "width 0",  # else a long path goes to a line of its own
        "print thread-events off",
        "print inferior-events off",
        "print pretty on",
        "step-mode off",
    ):
        gdb.execute(f"set {setting}")
    for name, symbol in BUILT_INS.items():
        gdb.execute(f"macro define {name} (*(uint3*)&{symbol})")
    gdb.execute("skip -gfi */simulator/include/*")
    for name in STOPS:
        gdb.Breakpoint(name, internal=True)
    gdb.pretty_printers.insert(0, printer)
    gdb.frame_filters["simulator"] = WithoutSimulator()
    gdb.events.stop.connect(stopped)
    Break()


begin()
