"""Is an op safe to use? `lab.audit` tries every known trap on it and reports which it falls into.

cases      awkward sizes, layouts and values, which the tests of the ops use, too
traps      the list of traps; they live in numbers, layouts, gradients, frameworks, checks, sources
example    what one call shows about an op, and further calls like it
judging    whether a result is right
run        `audit`; process runs it in a separate process; command is the command line
report     the findings: text, HTML, JSON
"""
