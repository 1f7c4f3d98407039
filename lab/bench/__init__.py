"""`make bench`: every op against everything else that is installed, in one run on a GPU.

    python -m lab.bench                                   all of it: minutes on an H200
    python -m lab.bench --ops square relu --cols 1024     a part of it
    python -m lab.bench --ops matmul --match "few rows"   the cells with that in their name
    python -m lab.bench --random 300 --seed 7             300 shapes that nobody has chosen

A machine with several GPUs of a kind shares the work out among them; percents are of a copy on the
same GPU.

The ops are those of reference.py, in both directions, in bfloat16 at 2^28 elements and float32 at
2^27. Options that take and give the same tensors count once: the first stands for them. A rival is
timed if its results are ours; a cell says why where it is not.

Matrix products, attention, rope and decoding have sizes of real models instead, in bfloat16, and
another way to take the time: power and clock decide how fast tensor cores are, so there ours and
all rivals take turns (`lab.measure.turns`). What counts is operations a second, or where traffic
limits percent of a copy, and the percent of the best rival in the same turns. Beside each time
stands the clock that held, and what throttled the GPU, as NVIDIA's management library says.
torch.compile chooses its kernels for each of those sizes by timing them, alone on its GPU: where
the time does not suffice for all cells, --ops and --match divide them among several runs. Each run
begins with cells that have no figures, and goes on with those whose figures are the oldest.

docs/bench.csv gets one line for each op, direction, options, type, width and implementation, and in
each line the conditions and the run: when it began, in UTC, or "2026-11-22 by 11:28" for lines of
which no more is known than the day and when they were published. A run replaces the lines that it
measures again under the same conditions and leaves all others, so that all lines of a cell are of
one run; `lab.bench.report` then writes the tables and pictures of the newest conditions, and
numbers the runs in them.
"""
