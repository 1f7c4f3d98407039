"""Runs an op once, for compute-sanitizer to watch: small shapes that take every path.

compute-sanitizer --tool racecheck python tests/helpers/sanitized.py layer_norm
"""

import sys

import torch
from op_calls import CALLS
from op_cases import BEST, CASES, outcome

# A width that is no multiple of the vector, one that is, one for many threads a row, one of which
# each row begins elsewhere between two vectors, one for a row in pieces; more rows than a block
# takes at once.
SHAPES = [(5, 33), (37, 64), (3, 1032), (9, 1033), (2, 20000)]
# Rows for all of a cluster, and rows that no cluster keeps: where a thread had one to itself, it
# would be at work for minutes.
WIDE = [(17, 40000), (3, 65539), (1, 140000)]

# In this thread: one of autograd's own, slowed by a tool, may outlive Python and abort the process.
torch.autograd.set_multithreading_enabled(False)

calls = [call for call in CALLS if call.name == sys.argv[1]]
for call in calls:
    print(call, flush=True)
    call.outcome(call.inputs())
cases = [case for case in CASES if case.op.name == sys.argv[1]]
for case in cases:
    print(case, flush=True)
    for rows, cols in SHAPES + WIDE * (case in BEST):
        for dtype in (torch.float32, torch.bfloat16):
            outcome(case.ours, case.inputs(rows, cols, dtype))
torch.cuda.synchronize()
print(f"ran {len(calls) + len(cases)} cases")
