"""Tables of the lab as another machine would have measured them."""

SHAPES = [(64, 32), (32, 128), (16, 512)]  # what the tests of figures measure


def as_if(table, target, predicted=False):
    """The table with the conditions, times and rivals that a run on `target` has.

    predicted: times for a GPU, from 4 us up, the first version's within 10% and others' within 30%.
    """
    table = table.copy()
    on_gpu = target == "cuda"
    times = 10.0 + table["cols"] / 100 if on_gpu else 100.0 + table["cols"]
    ours = table["implementation"].str.startswith("ours:")
    table["time_us"] = times if on_gpu else times.where(ours)
    table["clock"] = "GPU, cold L2" if on_gpu else ours.map({True: "CPU simulator", False: ""})
    table["gb_per_s"] = 1e-3 * table["bytes"] / table["time_us"] if on_gpu else float("nan")
    table["bytes_fetched"] = (2 * table["bytes"]).where(ours & (not on_gpu))
    expected = (4.0 + table["cols"] / 100).where(ours & predicted)
    versions = list(dict.fromkeys(table["implementation"]))
    width = 1.1 + 0.2 * (table["implementation"] != versions[0])
    table["predicted_us"] = expected
    table["predicted_low_us"], table["predicted_high_us"] = expected / width, expected * width
    table.attrs |= {
        "predicted_for": None if on_gpu else "H200",
        "target": target,
        "device": "NVIDIA H200" if on_gpu else "CPU simulator",
        "driver": "580.1" if on_gpu else None,
        "copy_gb_per_s": 4253.2 if on_gpu else None,
    }
    return table
