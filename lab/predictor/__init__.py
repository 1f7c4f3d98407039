"""How long a call would take on a GPU that is not there: `predict`, `python -m lab.calibrate`."""
