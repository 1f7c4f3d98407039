"""How wrong and how fast: errors, times, cases, and the tables that are made of them."""

from lab.measure.timing import Timing, bytes_moved, copy_bandwidth, time_call, time_on_host

__all__ = ["Timing", "bytes_moved", "copy_bandwidth", "time_call", "time_on_host"]
