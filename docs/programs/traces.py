"""What a trace costs: processor seconds to record, size of the page, steps a second in Chromium.

    python -m docs.programs.traces [FOLDER]

Five kernels, of which the first is a block of 256 threads with a loop of 1,000 iterations. The
pages are saved in FOLDER. Steps are drawn one a frame, as fast as frames come (at most 60 a
second), and the script's milliseconds a step are told besides: they do not depend on the screen.
"""

import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright

import jitload
import lab

LADDERS = jitload.KERNELS.parent / "notebooks/ladders"
LOOP = """\
__global__ void loop(const float* x, float* y, int n) {
    __shared__ float tile[256];
    const int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 1000; i++) {
        tile[t] = x[(t + i) % n];
        sum += tile[t] * i;
    }
    y[t] = sum;
}
extern "C" void run(const float* x, float* y, int n) { loop<<<1, 256>>>(x, y, n); }
"""
MOST = 300  # steps that are drawn
DRAW = """async most => {
    trace.go(0);
    const last = Math.min(most, trace.data.steps - 1), begun = performance.now();
    let script = 0;
    for (let n = 0; n < last; n++) {
        await new Promise(requestAnimationFrame);
        const before = performance.now();
        trace.go(n + 1);
        script += performance.now() - before;
    }
    return [last / (performance.now() - begun) * 1000, script / last];
}"""


def calls(folder: Path) -> Iterator[tuple[str, tuple, int]]:
    """Name, function with its arguments, and steps."""
    (folder / "loop.cu").write_text(LOOP)

    def of(path: Path) -> jitload.Kernel:
        return jitload.load(path, target="cpu", include=[LADDERS])

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape or (1 << 14,))

    zeros = torch.zeros(1 << 14)
    yield "256 threads, 1,000 times", (of(folder / "loop.cu").run, drawn(512), zeros, 512), 5000
    yield "sum, a tree", (of(LADDERS / "03_sum.cu").tree, drawn(), zeros, 300), 1000
    yield "softmax", (of(LADDERS / "05_softmax.cu").softmax, drawn(), zeros, 3, 256, 2), 1000
    attention = of(LADDERS / "17_attention.cu").online
    yield "attention", (attention, drawn(), drawn(), drawn(), zeros, 1, 64, True), 1000
    x, w = drawn(64, 256).bfloat16(), drawn(16, 256).bfloat16()
    yield "TMA and wgmma", (of(LADDERS / "16_steps.cu").ring, x, w, zeros, 256), 1000


def processor_seconds() -> float:
    it = resource.getrusage(resource.RUSAGE_SELF)
    return it.ru_utime + it.ru_stime


def drawn_in(page: Page, place: Path) -> tuple[float, float]:
    """Steps a second, and the script's milliseconds a step."""
    page.goto(place.as_uri())
    page.wait_for_function("window.trace", timeout=120_000)
    return tuple(page.evaluate(DRAW, MOST))


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = started.new_page(viewport={"width": 1300, "height": 900})
        for name, call, steps in calls(folder):
            lab.trace(*call, steps=1)  # built
            before = processor_seconds()
            trace = lab.trace(*call, steps=steps)
            seconds = processor_seconds() - before
            place = trace.save(folder / f"{name.replace(' ', '_').replace(',', '')}.html")
            rate, script = drawn_in(page, place)
            print(
                f"{name}: {trace.steps} steps{', cut' if trace.is_cut else ''}, {seconds:.2f} s,"
                f" {place.stat().st_size / 1e6:.2f} MB, {rate:.0f} steps a second,"
                f" {script:.1f} ms of script a step",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
