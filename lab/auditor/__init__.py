"""Is an op safe to use? `lab.audit` tries every known trap on it, and says which it falls into.

cases      sizes, layouts and values that are awkward: the tests of the ops use the same
traps      the list of traps; numbers, layouts, gradients, frameworks, checks, sources have them
example    what one call tells of an op, and calls like it
judging    whether a result is right
run        `audit`; process runs it in a process of its own; command is the command line
report     what was found: text, HTML, JSON
"""
