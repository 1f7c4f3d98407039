"""See a call run, step by step: `lab.trace`."""
