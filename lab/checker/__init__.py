"""What is wrong with a call: `lab.check` runs it with instrumented kernels and reports what they
do; `lab.trial` runs it in a separate process and reports how it ended.
"""
