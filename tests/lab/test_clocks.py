"""The GPU's clock beside a measurement, as a library in the place of NVIDIA's tells of it."""

import os
import sys
import time
import warnings

import fake_nvml
import pytest
import torch
from fake_nvml import IDLE, POWER_CAP, UUID, FakeNvml

import lab
from lab.measure import clocks, nvml, timing
from lab.measure.clocks import (
    Held,
    SharedWarning,
    ThrottledWarning,
    Watch,
    disturbances,
    warn_if_disturbed,
)
from lab.measure.nvml import Reason
from lab.measure.timing import Timing
from notebooks import rates

THROTTLED = Held(1410, 1980, 698.0, 700.0, Reason.SW_POWER_CAP)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The library as it is today, and as it was before driver 535."""
    folder = tmp_path_factory.mktemp("nvml")
    return {"new": fake_nvml.build(folder), "old": fake_nvml.build(folder, "-DOLD")}


@pytest.fixture
def fake(libraries, monkeypatch):
    return FakeNvml(monkeypatch, libraries["new"])


def held() -> Held | None:
    with Watch("cuda") as watch:
        time.sleep(3 * clocks.PERIOD)
    return watch.held


# ---- what NVML says


def test_a_gpu_says_its_clock_power_and_reasons(fake):
    gpu = nvml.gpu()
    assert (gpu.sm_mhz(), gpu.highest_sm_mhz()) == (1410, 1980)
    assert (gpu.watts(), gpu.highest_watts()) == (698.0, 700.0)
    assert gpu.reasons() == Reason.SW_POWER_CAP
    assert nvml.driver() == "580.159.04"


def test_before_driver_535_reasons_have_another_name(libraries, monkeypatch):
    FakeNvml(monkeypatch, libraries["old"])
    assert nvml.gpu().reasons() == Reason.SW_POWER_CAP


def test_a_reason_that_a_later_driver_adds_is_no_error(fake):
    fake.says(REASONS=1 << 40 | POWER_CAP)
    assert Reason.SW_POWER_CAP in nvml.gpu().reasons()
    assert held().throttles == ["the power cap"]


def test_an_instance_of_mig_has_the_clock_of_its_gpu(fake):
    fake.says(UUID=f"MIG-{UUID}")
    assert nvml.gpu().sm_mhz() == 1410
    assert held() == THROTTLED


def test_a_gpu_that_nvml_does_not_have_is_none(fake):
    fake.says(UUID="GPU-00000000-0000-0000-0000-000000000000")
    assert nvml.gpu() is None
    assert held() is None


def test_the_gpu_is_the_one_that_torch_uses(fake, monkeypatch):
    """With CUDA_VISIBLE_DEVICES=3 PyTorch calls the fourth GPU number 0."""
    asked = []
    known = torch.cuda.get_device_properties
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: asked.append(device) or known(device)
    )
    assert nvml.gpu(torch.device("cuda", 0)).sm_mhz() == 1410
    assert asked == [torch.device("cuda", 0)]


@pytest.mark.parametrize("missing", ["library", "package"])
def test_without_nvml_there_is_silence(monkeypatch, missing):
    fake_nvml.use(monkeypatch, None)
    if missing == "package":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.gpu() is None
    assert nvml.driver() is None
    assert held() is None


def test_a_library_whose_driver_is_not_loaded_is_none(fake, monkeypatch):
    monkeypatch.setenv("FAKE_BROKEN", "1")
    assert nvml.gpu() is None


@pytest.mark.parametrize("missing", ["HIGHEST_MHZ", "MILLIWATTS", "HIGHEST_MILLIWATTS", "REASONS"])
def test_what_nvml_does_not_say_is_left_out(fake, missing):
    fake.says(**{missing: None})
    seen = held()
    assert seen.mhz == 1410
    assert bool(seen.throttles) == (missing in ("MILLIWATTS", "HIGHEST_MILLIWATTS"))
    assert " W)" not in str(seen)


def test_without_a_clock_there_is_nothing_to_tell(fake):
    fake.says(MHZ=None)
    assert held() is None


# ---- the clock that held


def test_the_clock_that_held_is_watched_beside_the_block(fake):
    assert held() == THROTTLED


def test_the_shortest_block_has_one_reading(fake):
    with Watch("cuda") as watch:
        pass
    assert watch.held == THROTTLED


def test_the_readings_of_several_blocks_count_together(fake):
    watch = Watch("cuda")
    for mhz in (1400, 1500, 1900):
        fake.says(MHZ=mhz)
        with watch:
            end = time.monotonic() + 30
            while mhz not in {it.mhz for it in watch._readings}:
                assert time.monotonic() < end
                time.sleep(clocks.PERIOD)
    assert {it.mhz for it in watch._readings} == {1400, 1500, 1900}


def test_a_watch_ends_with_an_exception(fake):
    with pytest.raises(ArithmeticError), Watch("cuda") as watch:
        raise ArithmeticError
    assert not watch._thread.is_alive()


def test_the_median_counts_and_an_idle_gpu_does_not(fake):
    watch = Watch("cuda")
    for mhz, reasons in ((345, IDLE), (1980, POWER_CAP), (1500, POWER_CAP), (1600, 0), (345, IDLE)):
        fake.says(MHZ=mhz, REASONS=reasons)
        watch._read()
    assert watch.held == Held(1600, 1980, 698.0, 700.0, Reason.SW_POWER_CAP)
    idle = Watch("cuda")
    idle._read()
    assert idle.held.mhz == 345
    assert idle.held.throttles == []


@pytest.mark.parametrize(
    ("mhz", "reasons", "told"),
    [
        (1980, Reason.SW_POWER_CAP, []),  # on the verge of the cap, and not yet slower
        (1965, Reason.SW_POWER_CAP, []),
        (1410, Reason(0), []),
        (1410, Reason.APPLICATIONS_CLOCKS_SETTING, []),  # somebody wanted it
        (1410, Reason.SW_POWER_CAP, ["the power cap"]),
        (
            300,
            Reason.HW_SLOWDOWN | Reason.HW_THERMAL_SLOWDOWN,
            ["the hardware's limit of temperature", "a slowdown by the hardware"],
        ),
    ],
)
def test_throttled_is_a_lower_clock_with_a_reason(mhz, reasons, told):
    assert Held(mhz, 1980, reasons=reasons).throttles == told


def test_on_the_cpu_nothing_is_watched(fake):
    with Watch("cpu") as watch:
        pass
    assert watch.held is None


# ---- who else uses the GPU


@pytest.mark.parametrize(
    ("processes", "busy", "others"),
    [
        ("{own}", "{own}", 0),
        ("{own} 7", "{own}", 0),  # the other one has memory there, and does nothing
        ("{own} 7", "7", 1),  # this one was too quick for a sample
        ("{own} 7 8", "7 {own} 8 7", 2),
        ("{own}", "", 0),  # no sample yet
        ("7", "7", 0),  # a container's processes have other numbers outside of it
        ("7 8", "7 8", 1),
        ("", "", 0),
        (None, "7", None),
        ("{own} 7", None, None),  # an instance of MIG has no samples
    ],
)
def test_processes_that_compute_meanwhile_are_counted(fake, processes, busy, others):
    own = os.getpid()
    fake.says(PROCESSES=processes and processes.format(own=own), BUSY=busy and busy.format(own=own))
    if processes == "":
        fake.says(PROCESSES=" ", BUSY=" ")
    if busy == "":
        fake.says(BUSY=" ")
    assert held().others == others


def test_a_shared_gpu_is_warned_of():
    shared = Held(1980, 1980, others=1)
    with pytest.warns(SharedWarning) as warned:
        warn_if_disturbed([None, shared, Held(1980, 1980, others=2)], stacklevel=1)
    assert [str(it.message) for it in warned] == [
        "measured while 2 other processes used the GPU (2 of 3 measurements, this the most)"
    ]
    assert warned[0].filename == __file__


def test_a_caption_has_both_disturbances():
    assert disturbances([Held(1980, 1980)]) == ""
    assert (
        disturbances([Held(1980, 1980, others=1)]) == "measured while 1 other process used the GPU"
    )


def test_a_table_of_a_disturbed_gpu_says_so_in_its_figure(on_throttled_gpu):
    with pytest.warns(ThrottledWarning):
        table = lab.compare("square", shapes=[(2, 4)], dtypes=["float32"])
    assert table.attrs["disturbances"].startswith("measured at 1410 of 1980 MHz: the power cap")
    caption = lab.plot_versions(table).get_supxlabel()
    assert table.attrs["disturbances"] in " ".join(caption.split())


# ---- warnings


def test_the_warning_says_clock_reason_and_power():
    text = "measured at 1410 of 1980 MHz: the power cap held the clock down (698 of 700 W)"
    with pytest.warns(ThrottledWarning) as warned:
        warn_if_disturbed([THROTTLED], stacklevel=1)
    assert str(warned[0].message) == text
    assert warned[0].filename == __file__


def test_many_measurements_have_one_warning():
    slower = Held(1200, 1980, reasons=Reason.SW_THERMAL_SLOWDOWN)
    with pytest.warns(ThrottledWarning) as warned:
        warn_if_disturbed([THROTTLED, None, slower, Held(1980, 1980)])
    assert [str(it.message) for it in warned] == [
        "measured at 1200 of 1980 MHz: the driver's limit of temperature held the clock down"
        " (2 of 4 measurements, this the lowest clock)"
    ]


def test_no_throttling_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_disturbed([])
        warn_if_disturbed([None, Held(1980, 1980, reasons=Reason.SW_POWER_CAP)])


@pytest.fixture
def on_throttled_gpu(fake, monkeypatch):
    """Times that are said to be a GPU's: here they are the simulator's."""
    plain = timing._wall_time
    monkeypatch.setattr(timing, "_wall_time", lambda *given: _with_clock(plain(*given)))


def _with_clock(taken: Timing) -> Timing:
    return Timing(taken.median, taken.lower, taken.upper, taken.clock, THROTTLED)


@pytest.mark.parametrize(
    "measure",
    [
        lambda: lab.time_call(lambda: torch.ones(1)),
        lambda: lab.time_calls({"a": lambda: 1, "b": lambda: 2}, bytes=0),
        lambda: lab.compare("square", shapes=[(2, 4)], dtypes=["float32"]),
        lambda: lab.compare_calls({"a": torch.exp, "torch": torch.exp}, inputs=torch.ones(2)),
    ],
    ids=["time_call", "time_calls", "compare", "compare_calls"],
)
def test_each_instrument_warns_once_and_at_the_users_line(on_throttled_gpu, measure):
    with pytest.warns(ThrottledWarning) as warned:
        measure()
    own = [it for it in warned if it.category in (ThrottledWarning, SharedWarning)]
    assert [it.filename for it in own] == [__file__]


def test_a_time_of_the_gpu_has_the_clock_that_held(fake, monkeypatch):
    def on_gpu(call, seconds):
        return Timing(seconds, seconds, seconds, timing.GPU_CLOCK)

    monkeypatch.setattr(timing, "_time_on_gpu", on_gpu)
    assert timing.take_time(lambda: None, "cuda", 0.02).held == THROTTLED


# ---- for the chapters


def test_the_chapters_ask_the_same_library(fake):
    assert rates.gpu_clock() == 1410
    assert rates.gpu_clock("clocks.max.sm") == 1980


def test_the_chapters_have_no_number_without_it(monkeypatch):
    fake_nvml.use(monkeypatch, None)
    assert rates.gpu_clock() != rates.gpu_clock()  # NaN
