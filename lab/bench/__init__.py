"""`make bench`: every op against everything else that is installed, in one run on a GPU.

    python -m lab.bench                                   all of it: minutes on an H200
    python -m lab.bench --ops square relu --cols 1024     a part of it

A machine with several GPUs of a kind shares the work out among them; percents are of a copy on the
same GPU.

The ops are those of reference.py, in both directions, in bfloat16 at 2^28 elements and float32 at
2^27. Options that take and give the same tensors count once: the first stands for them. A rival is
timed if its results are ours; a cell says why where it is not.

docs/bench.csv gets one line for each op, direction, options, type, width and implementation, and in
each line the conditions and the run: when it began, in UTC, or "2026-11-22 by 11:28" for lines of
which no more is known than the day and when they were published. A run replaces the lines that it
measures again under the same conditions and leaves all others, so that all lines of a cell are of
one run; `lab.bench.report` then writes the tables and pictures of the newest conditions, and
numbers the runs in them.
"""
