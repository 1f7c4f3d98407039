"""A judge for kernels that somebody else wrote, and that may cheat: `python -m lab judge`.

task        what is wanted: a reference, shapes in letters, a floor of bytes
gate        what a source may not contain, and gate_library its library
sandbox     a process without network and files, with limits of time and memory
runner      the side that runs the submission; it knows neither truth nor seed
run         `judge`: one submission
command     the command line, and batches side by side
server      the same for agents: an MCP server
"""
