"""The special registers: functions of these names in special_registers.h, a dot being `_`."""

SPECIAL_REGISTERS = frozenset(
    [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    + [
        f"{name}.{axis}"
        for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
        for axis in "xyz"
    ]
    + ["cluster_ctarank", "cluster_nctarank", "is_explicit_cluster"]
    + ["laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid"]
    + [f"lanemask_{relation}" for relation in ("eq", "le", "lt", "ge", "gt")]
    + ["clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"]
    + ["dynamic_smem_size", "total_smem_size", "aggr_smem_size"]
)
