"""Tables of the lab as another machine would have measured them."""

SHAPES = [(64, 32), (32, 128), (16, 512)]  # what the tests of figures measure


def as_if(table, target):
    """The table with the conditions, times and rivals that a run on `target` has."""
    table = table.copy()
    on_gpu = target == "cuda"
    times = 10.0 + table["cols"] / 100 if on_gpu else 100.0 + table["cols"]
    ours = table["implementation"].str.startswith("ours:")
    table["time_us"] = times if on_gpu else times.where(ours)
    table["clock"] = "GPU, cold L2" if on_gpu else ours.map({True: "CPU simulator", False: ""})
    table["gb_per_s"] = 1e-3 * table["bytes"] / table["time_us"] if on_gpu else float("nan")
    table["bytes_fetched"] = (2 * table["bytes"]).where(ours & (not on_gpu))
    table.attrs |= {
        "target": target,
        "device": "NVIDIA H200" if on_gpu else "CPU simulator",
        "driver": "580.1" if on_gpu else None,
        "copy_gb_per_s": 4253.2 if on_gpu else None,
    }
    return table
