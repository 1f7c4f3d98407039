"""Measures errors and times of ops and calls, and makes tables of them."""

from lab.measure.timing import Timing, bytes_moved, copy_bandwidth, time_call, time_on_host

__all__ = ["Timing", "bytes_moved", "copy_bandwidth", "time_call", "time_on_host"]
