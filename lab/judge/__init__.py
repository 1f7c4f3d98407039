"""Judges untrusted kernels, whose authors may cheat: `python -m lab judge`.

task        the problem: a reference, shapes in letters, a minimum of bytes
gate        what a source may not contain; gate_library: what its library may not contain
sandbox     a process without network and files, with limits on time and memory
runner      the process that runs the submission, without the truth or the seed
run         `judge`: one submission
command     the command line; judges batches in parallel
server      an MCP server for agents
"""
