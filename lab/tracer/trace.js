// The page: what step it shows, and the controls.
"use strict";

const root = document.documentElement;
const dark = () => root.classList.contains("dark");

// The theme of the page around, where this is a frame in one; else the system's.
function isDark() {
    try {
        const around = window.parent.document;
        const jupyter = around.body.dataset.jpThemeLight;
        if (jupyter) return jupyter === "false";
        const site = around.documentElement.dataset.theme;
        if (site === "dark" || site === "light") return site === "dark";
        if (around.body.classList.contains("vscode-dark")) return true;
        if (around.body.classList.contains("vscode-light")) return false;
    } catch { /* it is of another origin */ }
    return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Where it may be told, calls back when that theme changes.
function watchTheme(changed) {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
    try {
        const around = window.parent.document, watcher = new MutationObserver(changed);
        watcher.observe(around.body, { attributes: true });
        watcher.observe(around.documentElement, { attributes: true });
    } catch { /* it is of another origin */ }
}

async function main() {
    root.classList.toggle("dark", isDark());
    const { facts, packed } = JSON.parse(byId("data").textContent);
    const data = new TraceData(facts, await unpacked(packed));
    const last = Math.max(0, data.steps - 1);
    const state = { step: 0, thread: 0, cell: null, timer: 0 };

    byId("title").textContent = data.kernel;
    byId("subtitle").textContent =
        `block${data.blocks.length > 1 ? "s" : ""} ${data.blocks.map((at) => `(${at.join(", ")})`).join(", ")}`
        + ` of (${data.grid.join(", ")}), ${data.perBlock} threads`;
    const notes = [];
    if (data.isCut)
        notes.push(`Recorded are steps ${data.spans}${data.blocks.length > 1 ? " of each block" : ""}; the others are left out.`);
    if (data.blocks.length > 1) notes.push("Each block has steps of its own, in the order in which the simulator ran them.");
    for (const [name, why] of Object.entries(data.leftOut)) notes.push(`Not shown: ${name}, ${why}.`);
    byId("notes").textContent = notes.join(" ");

    const chooser = byId("thread");
    for (let thread = 0; thread < data.threads; thread++) {
        if (!data.isThread(thread)) continue;
        const text = `${data.threadName(thread)} (warp ${thread >> 5}, lane ${thread & 31})`;
        chooser.append(element("option", text, { value: thread }));
    }
    const go = (step, thread) => {
        state.step = Math.max(0, Math.min(last, step));
        if (thread !== undefined && thread < data.threads) state.thread = thread;
        draw();
    };
    const choose = (thread) => go(state.step, thread);
    const chooseCell = (region, cell) => {
        state.cell = { region, cell };
        byId("access").disabled = false;
        byId("access").textContent = "next access of " + data.elementName(region, cell);
    };
    const panels = [new WarpLanes(data, go), new Source(data, choose), new Locals(data),
        new Memory(data, go, chooseCell), new Fragments(data)];

    function draw() {
        byId("slider").value = state.step;
        byId("number").value = data.rNumber[state.step] ?? 0;
        if (chooser.value !== String(state.thread)) chooser.value = state.thread;
        for (const panel of panels) panel.draw(state.step, state.thread);
        byId("back").disabled = state.step === 0;
        byId("forward").disabled = state.step === last;
        byId("barrier").disabled = !barriers.some((step) => step > state.step);
        byId("finding").disabled = !found.length;
    }

    // The steps in which a barrier lets a block go on, or somebody begins to wait at one.
    const barriers = [...data.opened];
    for (const rows of data.waitsOfWarp)
        for (const row of rows)
            if (row.waits.some((it) => /sync|barrier|arrive|wait/i.test(it.word))) barriers.push(row.round);
    barriers.sort((a, b) => a - b);
    const found = [];
    data.findings.forEach((finding, number) => {
        byId("findings").hidden = false;
        const box = element("div", "", { class: number === data.finding ? "finding chosen" : "finding" });
        box.append(element("b", finding.title), element("div", finding.message));
        for (const end of finding.ends) {
            const where = `${end.file.split("/").pop()}:${end.line}`;
            if (end.step === undefined || end.step === null) {
                box.append(element("span", where + (end.thread === undefined ? " (another block) " : " (not recorded) "), { class: "soft" }));
                continue;
            }
            const button = element("button", `${where}, ${data.threadName(end.thread)}, step ${data.rNumber[end.step]}`);
            button.onclick = () => go(end.step, end.thread);
            box.append(button);
            found.push([end.step, end.thread]);
        }
        byId("findings").append(box);
    });
    found.sort((a, b) => a[0] - b[0]);

    const next = {
        barrier: () => go(barriers.find((step) => step > state.step) ?? state.step),
        finding: () => found.length && go(...(found.find(([step]) => step > state.step) || found[0])),
        access: () => {
            if (!state.cell) return;
            const touches = data.cells[state.cell.region].get(state.cell.cell) || [];
            const t = touches.find((t) => data.tRound[t] > state.step) ?? touches[0];
            if (t !== undefined) go(data.tRound[t], data.tThread[t]);
        },
    };
    function play() {
        if (state.timer) cancelAnimationFrame(state.timer), (state.timer = 0);
        else {
            if (state.step === last) state.step = 0;
            let before = performance.now();
            const frame = (now) => {
                if (now - before >= 1000 / 31) {
                    before = now;
                    go(state.step + 1);
                }
                state.timer = state.step < last ? requestAnimationFrame(frame) : 0;
                if (!state.timer) byId("play").textContent = "▶ play";
            };
            state.timer = requestAnimationFrame(frame);
        }
        byId("play").textContent = state.timer ? "⏸ pause" : "▶ play";
    }
    byId("slider").max = last;
    const stepOf = (number) => Math.max(0, [...data.rNumber].findIndex((it) => it >= number));
    byId("slider").oninput = () => go(Number(byId("slider").value));
    byId("number").onchange = () => go(stepOf(Number(byId("number").value)));
    byId("back").onclick = () => go(state.step - 1);
    byId("forward").onclick = () => go(state.step + 1);
    byId("play").onclick = play;
    for (const name of ["barrier", "access", "finding"]) byId(name).onclick = next[name];
    chooser.onchange = () => choose(Number(chooser.value));
    byId("whole").onchange = draw;
    addEventListener("keydown", (event) => {
        if (/INPUT|SELECT/.test(event.target.tagName) && event.target.type !== "range") return;
        const act = { ArrowLeft: () => go(state.step - 1), ArrowRight: () => go(state.step + 1), " ": play,
            b: next.barrier, a: next.access, f: next.finding }[event.key];
        if (!act) return;
        event.preventDefault();
        act();
    });
    // What the browser has laid out is asked for here, and not in each step.
    const measure = () => {
        for (const panel of panels) panel.measure?.();
        draw();
    };
    watchTheme(() => {
        if (isDark() === dark()) return;
        root.classList.toggle("dark");
        for (const panel of panels) panel.recolour?.();
        measure();
    });
    const watcher = new ResizeObserver(measure);
    for (const name of ["timeline", "source", "memory"]) watcher.observe(byId(name));
    for (const panel of panels) panel.measure?.();
    const wanted = new URLSearchParams(location.hash.slice(1));
    const [step, thread] = data.start;
    go(wanted.has("step") ? stepOf(Number(wanted.get("step"))) : step, Number(wanted.get("thread") ?? thread));
    window.trace = { data, state, go, draw, panels };
}
main();
