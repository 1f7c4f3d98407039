"""`make bench`: every op against every other installed implementation, in one run on a GPU.

    python -m lab.bench                                   everything: minutes on an H200
    python -m lab.bench --ops square relu --cols 1024     a part of it
    python -m lab.bench --ops matmul --match "few rows"   the cells whose names contain that
    python -m lab.bench --random 300 --seed 7             300 random shapes

With several GPUs of a kind, the run divides the work among them; percentages refer to a copy on
the same GPU.

It measures the ops of reference.py in both directions, in bfloat16 at 2^28 elements and float32
at 2^27. Options with the same input and output tensors count once: the first stands for them. A
rival is timed only if its results agree with ours; otherwise its line gives the reason.

Matrix products, attention, rope and decoding use sizes of real models, in bfloat16, and another
timing method: power and clock decide how fast tensor cores are, so ours and all rivals take turns
(`lab.measure.turns`). Results are operations a second, or percent of a copy where traffic limits,
and percent of the best rival in the same turns. Each line also has the clock that held and what
throttled the GPU, as NVIDIA's management library reports it. torch.compile chooses its kernels for
each of those sizes by timing them, alone on its GPU. If one run is too short for all cells, divide
them among several runs with --ops and --match. Each run begins with cells that have no figures, and
goes on with those whose figures are the oldest.

docs/bench.csv has one line for each op, direction, options, type, width and implementation. Each
line has the conditions and the run: its start in UTC, or "2026-11-22 by 11:28" where only the day
and the time of publication are known. A run replaces the lines that it measures again under the
same conditions and leaves all others, so all lines of a cell come from one run. `lab.bench.report`
then writes the tables and pictures of the newest conditions, and numbers the runs in them.
"""
