// The panels of a trace. Each has draw(step).
"use strict";

const COLOURS = ["#0072b2", "#d55e00", "#00875f", "#b0528b", "#8c6d00", "#3a86c8", "#7a3db8", "#666666"];
const BRIGHT = ["#56b4e9", "#ff9248", "#3fbf8f", "#e08fc0", "#d1ad2c", "#9cc4ff", "#c09af5", "#b0b0b0"]; // on dark
const colourOf = (warp) => (dark() ? BRIGHT : COLOURS)[warp % COLOURS.length];
const byId = (id) => document.getElementById(id);
// The colours of these names, as trace.html has them for the theme.
function coloursOf(...names) {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
}

function element(name, text = "", attributes = {}) {
    const it = document.createElement(name);
    it.textContent = text;
    for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
    return it;
}

// Text, where it differs: the browser lays out anew what was written.
function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

// A canvas of so many CSS pixels, sharp on any screen.
function sized(canvas, width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, Math.max(1, 16000 / width));
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
}

function tip(event, text) {
    const it = byId("tip");
    it.style.display = text ? "block" : "none";
    if (!text) return;
    it.textContent = text;
    it.style.left = Math.min(event.clientX + 12, innerWidth - it.offsetWidth - 6) + "px";
    it.style.top = Math.min(event.clientY + 14, innerHeight - it.offsetHeight - 6) + "px";
}

function lanesText(lanes) {
    const ranges = [];
    for (let lane = 0; lane < WARP; lane++) {
        if (!((lanes >>> lane) & 1)) continue;
        const last = ranges[ranges.length - 1];
        if (last && last[1] === lane - 1) last[1] = lane;
        else ranges.push([lane, lane]);
    }
    return ranges.map(([a, b]) => (a === b ? a : a + "-" + b)).join(", ");
}

// ---- What each warp does, over time

class WarpLanes {
    constructor(data, go) {
        this.data = data;
        this.canvas = byId("lanes");
        this.mark = byId("mark");
        this.around = byId("timeline");
        this.around.onscroll = () => (this.scrolled = this.around.scrollLeft);
        this.canvas.onclick = (event) => go(this.stepAt(event));
        this.canvas.onmousemove = (event) => tip(event, this.told(event));
        this.canvas.onmouseleave = (event) => tip(event, "");
        byId("legend").textContent =
            "a colour for each line; grey: waits; a column split in two: lanes of the warp at different lines"
            + (data.fRound.length ? "; below, orange: copies in flight, purple: products" : "")
            + (data.mbarriers.length ? "; last rows: phases of mbarriers" : "");
    }
    stepAt(event) {
        return Math.max(0, Math.min(this.data.steps - 1, Math.floor(event.offsetX / this.width)));
    }
    told(event) {
        const { data } = this, step = this.stepAt(event);
        const row = this.rows.findIndex((it) => event.offsetY >= it.top && event.offsetY < it.top + it.high);
        if (row < 0) return "";
        if (row >= data.warps) return this.toldOfBarrier(row - data.warps, step);
        const said = data.groupsIn(row, step).map((g) => {
            const [, line, name] = data.places[data.gPlace[g]];
            return `line ${line} (${name}): lanes ${lanesText(data.gLanes[g])}`;
        });
        for (const it of data.waitsAt(row, step).waits) {
            const whom = data.awaited(row, step, it.word);
            said.push(`wait: ${it.word}: lanes ${lanesText(it.lanes)}` + (whom ? `, for ${whom}` : ""));
        }
        for (const it of data.flightsOfWarp[row])
            if (it.from <= step && (step < it.until || step === it.from)) {
                const times = it.count > 1 ? `, ${it.count} times` : "";
                const until = it.from === it.until ? "" : `, since step ${data.rNumber[it.from]}, `
                    + (it.until < data.steps ? `waited for at step ${data.rNumber[it.until]}` : "not waited for");
                said.push(`${it.from === it.until ? "" : "in flight: "}${data.words[it.word]}${times}${until}`);
            }
        return [`step ${data.rNumber[step]}, ${data.warpName(row)}`, ...said].join("\n");
    }
    toldOfBarrier(number, step) {
        const { data } = this, rows = data.changesOfBarrier[number];
        const at = after(rows, step, (row) => row.round);
        const said = [`step ${data.rNumber[step]}, mbarrier ${data.mbarriers[number]}`];
        if (!at) return [...said, "not initialised in these steps"].join("\n");
        const it = rows[at - 1];
        said.push(`phase ${it.phase} (parity ${it.phase % 2}): ${it.left} of ${it.count} still to arrive`
            + (it.bytes ? `, ${it.bytes} bytes to come` : ""));
        for (const row of rows.slice(Math.max(0, at - 8), at))
            if (row.round === step) said.push(`${row.word}, ${data.threadName(row.thread)}`);
        return said.join("\n");
    }
    // Where warps and mbarriers lie.
    arrange() {
        const { data } = this;
        this.rows = [];
        let top = 0;
        for (let warp = 0; warp < data.warps; warp++) {
            const high = 20 + 5 * data.flightRows[warp];
            this.rows.push({ top, high });
            top += high;
        }
        for (let i = 0; i < data.mbarriers.length; i++) this.rows.push({ top, high: 16 }), (top += 16);
        return top;
    }
    // Once for each size and theme: a step only moves the mark.
    measure() {
        const { data } = this;
        this.room = this.around.clientWidth;
        this.scrolled = this.around.scrollLeft;
        this.left = data.mbarriers.length ? 110 : data.blocks.length > 1 ? 54 : 34;
        this.height = 20;
        const room = this.room - this.left - 4;
        this.width = Math.max(data.steps > 7000 ? 2 : 4, Math.min(26, room / Math.max(1, data.steps)));
        const high = this.arrange(), pen = sized(this.canvas, this.width * data.steps + 2, high);
        this.names = sized(byId("names"), this.left, high);
        this.mark.style.width = Math.max(2, this.width) + 2 + "px";
        this.mark.style.height = high + "px";
        this.colours = coloursOf("never", "ink", "soft", "product", "copy", "odd", "even");
        for (const it of [pen, this.names]) it.font = "11px ui-monospace, monospace", it.textBaseline = "middle";
        for (let warp = 0; warp < data.warps; warp++) this.paintWarp(pen, warp, this.rows[warp].top);
        data.changesOfBarrier.forEach((_, i) => this.paintBarrier(pen, i, this.rows[data.warps + i].top));
    }
    paintWarp(pen, warp, top) {
        const { data } = this, numbers = this.width >= 18;
        this.names.fillStyle = colourOf(warp);
        this.names.fillText(data.warpName(warp), 4, top + this.height / 2);
        const rows = data.waitsOfWarp[warp];
        rows.forEach((row, i) => {
            if (!row.waits.length) return;
            const end = i + 1 < rows.length ? rows[i + 1].round : data.steps;
            pen.fillStyle = this.colours.never;
            pen.fillRect(row.round * this.width, top + this.height - 6,
                (end - row.round) * this.width, 4);
        });
        const mine = data.groupsOfWarp[warp];
        for (let i = 0; i < mine.length; i++) {
            const round = data.gRound[mine[i]];
            let first = i, end = i + 1;
            while (first && data.gRound[mine[first - 1]] === round) first--;
            while (end < mine.length && data.gRound[mine[end]] === round) end++;
            const line = data.places[data.gPlace[mine[i]]][1];
            const high = (this.height - 8) / (end - first);
            const x = round * this.width, y = top + 1 + (i - first) * high;
            pen.fillStyle = `hsl(${(line * 67) % 360} 55% ${dark() ? 38 : 78}%)`;
            pen.fillRect(x, y, Math.max(1, this.width - (this.width > 5 ? 1 : 0)), high - 0.5);
            if (numbers && end - first === 1) {
                pen.fillStyle = this.colours.ink;
                pen.fillText(line, x + 2, y + high / 2);
            }
        }
        for (const it of data.flightsOfWarp[warp]) {
            pen.fillStyle = this.colours[it.isProduct ? "product" : "copy"];
            const x = it.from * this.width;
            if (it.row < 0) pen.fillRect(x, top + this.height - 8, Math.max(2, this.width - 1), 2);
            else pen.fillRect(x + 1, top + this.height + 5 * it.row - 1, Math.max(2, (it.until - it.from) * this.width - 1), 3);
        }
    }
    paintBarrier(pen, number, top) {
        const { data } = this, rows = data.changesOfBarrier[number];
        this.names.fillStyle = this.colours.soft;
        const name = data.mbarriers[number];
        this.names.fillText(name.length > 15 ? "…" + name.slice(-14) : name, 4, top + 8);
        rows.forEach((row, i) => {
            const end = i + 1 < rows.length ? rows[i + 1].round : data.steps;
            const x = row.round * this.width;
            pen.fillStyle = this.colours[row.phase % 2 ? "odd" : "even"];
            pen.fillRect(x, top + 3, (end - row.round) * this.width, 10);
            pen.fillStyle = this.colours.ink;
            pen.fillRect(x, top + 3, 1, 10);
        });
    }
    draw(step) {
        const x = this.left + step * this.width;
        this.mark.style.transform = `translateX(${x - 1}px)`;
        if (x < this.scrolled + this.left || x > this.scrolled + this.room - 30)
            this.around.scrollLeft = this.scrolled = Math.max(0, x - this.room / 2);
    }
}

// ---- The source, with the line of each warp

class Source {
    constructor(data, choose) {
        this.data = data;
        this.choose = choose;
        this.rows = new Map(); // file:line -> its row, and where that lies
        this.keys = [];
        this.chips = Array.from({ length: data.warps }, () => []); // of each warp, which are used again
        const found = new Set();
        for (const finding of data.findings)
            for (const end of finding.ends) found.add(end.file + ":" + end.line);
        const box = (this.box = byId("source"));
        box.onscroll = () => (this.scrolled = box.scrollTop);
        data.files.forEach((file, number) => {
            const used = [...data.counts.keys()].filter((key) => key.startsWith(number + ":"));
            const lines = used.map((key) => Number(key.split(":")[1]));
            const [first, last] = [Math.max(1, Math.min(...lines) - 4), Math.max(...lines) + 2];
            if (number || data.files.length > 1) box.append(element("div", file.name, { class: "soft" }));
            const table = element("table");
            table.innerHTML = "<tr><th>line</th><th title='times a warp ran it'>warps</th>"
                + "<th title='and in how many lanes, all told'>lanes</th><th></th></tr>";
            file.lines.forEach((text, i) => {
                const line = i + 1;
                if (line < first || line > last) return;
                const [runs, lanes] = data.counts.get(number + ":" + line) || ["", ""];
                const row = element("tr");
                row.append(element("td", line, { class: "number" }), element("td", runs, { class: "count" }),
                    element("td", lanes, { class: "count" }), element("td", "", { class: "code" }));
                row.lastChild.append(element("span"), document.createTextNode(text));
                row.classList.toggle("found", found.has(file.name + ":" + line));
                this.rows.set(number + ":" + line, { row, top: 0 });
                table.append(row);
            });
            box.append(table);
        });
        byId("file").textContent = data.files.length === 1 ? data.files[0].name.split("/").pop() : "";
        this.now = new Set();
    }
    measure() {
        const top = this.box.getBoundingClientRect().top - this.box.scrollTop;
        this.scrolled = this.box.scrollTop;
        this.high = this.box.clientHeight;
        for (const it of this.rows.values()) it.top = it.row.getBoundingClientRect().top - top;
    }
    // Chips of the warps whose lines or lanes have changed move.
    draw(step, thread) {
        const { data } = this;
        for (let warp = 0; warp < data.warps; warp++) {
            const groups = data.groupsIn(warp, step), key = groups.map((g) => data.gPlace[g] + ":" + data.gLanes[g]).join();
            if (this.keys[warp] === key) continue;
            this.keys[warp] = key;
            groups.forEach((g, i) => this.putChip(warp, i, data.gPlace[g], data.gLanes[g]));
            for (const chip of this.chips[warp].slice(groups.length)) chip.remove();
        }
        const now = new Set(data.groupsIn(thread >> 5, step).map((g) => this.rowOf(data.gPlace[g])).filter((it) => it));
        for (const it of this.now) if (!now.has(it)) it.row.classList.remove("now");
        for (const it of now) {
            it.row.classList.add("now");
            const top = it.top - this.scrolled;
            if (top < 0 || top > this.high - 30) this.box.scrollTop = this.scrolled = Math.max(0, it.top - this.high / 2);
        }
        this.now = now;
    }
    rowOf(place) {
        const [file, line] = this.data.places[place];
        return this.rows.get(file + ":" + line);
    }
    putChip(warp, number, place, lanes) {
        const chip = (this.chips[warp][number] ??= this.newChip(warp)), it = this.rowOf(place);
        if (!it) return chip.remove();
        chip.title = `warp ${warp}: lanes ${lanesText(lanes)}`;
        chip.onclick = () => this.choose(warp * WARP + Math.log2(lanes & -lanes >>> 0));
        const box = it.row.lastChild.firstChild; // in the order of warps
        if (chip.parentElement !== box)
            box.insertBefore(chip, [...box.children].find((other) => Number(other.dataset.warp) > warp) || null);
    }
    recolour() {
        this.chips.forEach((chips, warp) => chips.forEach((chip) => (chip.style.background = colourOf(warp))));
    }
    newChip(warp) {
        const attributes = { class: "chip", style: "background:" + colourOf(warp), "data-warp": warp };
        return element("span", this.data.warpName(warp), attributes);
    }
}

// ---- The variables of a thread, or of all lanes of its warp

class Locals {
    constructor(data) {
        this.data = data;
        this.head = element("div", "", { class: "memory soft" });
        this.rows = []; // of the thread's variables, which are used again
        this.table = element("table");
    }
    draw(step, thread) {
        const { data } = this, box = byId("locals");
        const g = data.groupOf(thread, step);
        if (g < 0) return box.replaceChildren(element("div", "It has not begun.", { class: "memory soft" }));
        const [, line, name] = data.places[data.gPlace[g]];
        const runs = data.gRound[g] === step;
        const wait = data.waitsAt(thread >> 5, step).waits.find((it) => (it.lanes >>> (thread & 31)) & 1);
        const alive = (data.waitsAt(thread >> 5, step).alive >>> (thread & 31)) & 1;
        const doing = runs ? "runs" : wait ? "waits (" + wait.word + ") after" : alive ? "waits for other lanes after" : "has ended after";
        const whom = wait && !runs ? data.awaited(thread >> 5, step, wait.word) : "";
        write(this.head, `${data.threadName(thread)} ${doing} line ${line} of ${name}` + (whom ? `; still to come: ${whom}` : ""));
        let { table } = this;
        if (byId("whole").checked) this.whole((table = element("table")), step, thread >> 5);
        else {
            const found = data.locals(thread, step);
            while (this.rows.length > found.length) this.rows.pop().remove();
            found.forEach((it, i) => {
                if (!this.rows[i]) {
                    this.rows[i] = element("tr");
                    this.rows[i].append(element("td"), element("td", "", { class: "value" }), element("td", "", { class: "soft" }));
                    table.append(this.rows[i]);
                }
                const row = this.rows[i];
                row.classList.toggle("changed", it.changed);
                [it.name, shown(it.value), it.changed ? "changed" : ""].forEach((text, k) => write(row.children[k], text));
            });
        }
        if (box.firstChild !== this.head || box.lastChild !== table) box.replaceChildren(this.head, table);
    }
    whole(table, step, warp) {
        const names = [], rows = [];
        for (let lane = 0; lane < WARP && warp * WARP + lane < this.data.threads; lane++) {
            const found = this.data.locals(warp * WARP + lane, step);
            for (const it of found) if (!names.includes(it.name)) names.push(it.name);
            rows.push(found);
        }
        const head = element("tr");
        head.append(element("th", "lane"), ...names.map((name) => element("th", name)));
        table.append(head);
        rows.forEach((found, lane) => {
            const row = element("tr");
            row.append(element("td", lane));
            for (const name of names) {
                const it = found.find((it) => it.name === name);
                const cell = element("td", it ? shown(it.value) : "");
                if (it && it.changed) cell.style.background = "var(--changed)";
                row.append(cell);
            }
            table.append(row);
        });
    }
}

// ---- Shared arrays and tensors

const MOST_CELLS = 1 << 14;

class Memory {
    constructor(data, go, choose) {
        this.data = data;
        this.grids = [];
        data.regions.forEach((region, number) => {
            const cells = data.cells[number];
            if (region.barriers || !region.isMeant || (!cells.size && !region.shared)) return; // phases are above
            let columns = region.shape.length > 1 ? region.shape[region.shape.length - 1] : 32;
            if (columns * region.size === region.bytes) columns = Math.min(columns, 32); // a single row
            if (columns > 256) columns = 128;
            const all = Math.floor(region.bytes / region.size);
            let first = 0, end = all, stride = columns;
            if (region.columns) { // tensor memory: the columns that are used, of all lanes
                [first, columns, stride] = [region.columns[0], region.columns[1] - region.columns[0], region.shape[1]];
            } else if (cells.size && (!region.shared || all > 4096)) {
                first = all, end = 0;
                for (const cell of cells.keys()) first = Math.min(first, cell), end = Math.max(end, cell + 1);
            }
            if (!region.columns) first -= first % columns;
            if (!region.columns) end = Math.min(end, first + Math.floor(MOST_CELLS / columns) * columns, all);
            const box = element("div", "", { class: "memory" });
            const shape = region.shape.join(" x ");
            let said = `${region.of || region.name} [${shape}], ${region.shared ? "shared" : "global"} memory`;
            if (region.columns) said = `${region.of || region.name}: 128 lanes, columns ${first} to ${region.columns[1] - 1} of 512`;
            else if (end - first < all) said += `; shown are elements ${first} to ${end - 1} of ${all}`;
            box.append(element("div", said, { class: "soft" }));
            const canvas = element("canvas");
            canvas.dataset.region = region.name;
            const scroll = element("div", "", { class: "scroll" });
            const strip = region.columns && element("canvas"), uses = region.columns && element("div", "", { class: "soft uses" });
            if (strip) scroll.append(strip);
            scroll.append(canvas);
            if (uses) box.append(uses);
            box.append(scroll);
            byId("memory").append(box);
            const grid = { number, region, columns, stride, first, end, canvas, strip, uses };
            this.grids.push(grid);
            canvas.onmousemove = (event) => tip(event, this.told(grid, this.cellAt(grid, event)));
            canvas.onmouseleave = (event) => tip(event, "");
            canvas.onclick = (event) => {
                const cell = this.cellAt(grid, event);
                if (cell < 0) return;
                choose(number, cell);
                const { writer } = data.cell(number, cell, this.step);
                if (writer !== undefined) go(data.tRound[writer], data.tThread[writer]);
            };
        });
    }
    cellAt(grid, event) {
        const column = Math.floor(event.offsetX / grid.wide), row = Math.floor(event.offsetY / grid.high);
        const cell = grid.first + row * grid.stride + column;
        return column < grid.columns && cell < grid.end ? cell : -1;
    }
    told(grid, cell) {
        if (cell < 0) return "";
        const { data } = this, { value, writer } = data.cell(grid.number, cell, this.step);
        const said = [data.elementName(grid.number, cell) + (value === undefined ? "" : " = " + shown(value))];
        const work = grid.region.columns && value !== undefined && data.lastTensorWrite(grid.number, cell, this.step);
        if (work) said.push(`written by ${work.word} of ${data.threadName(work.thread)}, asked for in step ${data.rNumber[work.from]}`);
        else if (writer !== undefined) {
            const who = data.tThread[writer], when = data.tRound[writer];
            if (who === 0xffff) said.push(`written by an asynchronous copy, a tensor core or another block before step ${data.rNumber[when] + 1}`);
            else {
                const [, line] = data.places[data.gPlace[data.groupOf(who, when)]];
                said.push(`written by ${data.threadName(who)} at line ${line}, step ${data.rNumber[when]}`);
            }
        } else said.push(grid.region.shared ? "nobody has written it" : value === undefined ? "not touched here" : "as it was before");
        return said.join("\n");
    }
    draw(step) {
        this.step = step;
        const { data } = this, marks = this.grids.map(() => new Map());
        for (let t = data.touchedIn[step]; t < data.touchedIn[step + 1]; t++) {
            const at = this.grids.findIndex((grid) => grid.number === data.tRegion[t]);
            if (at < 0) continue;
            for (const cell of data.cellsOf(t)) {
                const mark = marks[at].get(cell) || {};
                mark[data.isRead(t) ? "read" : "written"] = data.tThread[t] === 0xffff ? "#888888" : colourOf(data.tThread[t] >> 5);
                marks[at].set(cell, mark);
            }
        }
        this.grids.forEach((grid, i) => this.drawGrid(grid, marks[i]));
        for (const grid of this.grids) if (grid.strip) this.drawUses(grid, step);
        write(byId("accesses"), requests(data, step).join("\n"));
    }
    measure() {
        for (const grid of this.grids) grid.room = grid.canvas.parentElement.clientWidth;
    }
    // What is under way in which columns: a bar that is filled where it writes.
    drawUses(grid, step) {
        const { data } = this, found = data.tensorUsesAt(grid.number, step);
        const pen = sized(grid.strip, grid.columns * grid.wide + 1, 23);
        pen.font = "9px ui-monospace, monospace";
        pen.textAlign = "center";
        pen.fillStyle = grid.colours.ink;
        const apart = Math.max(1, Math.ceil(26 / grid.wide)); // numbers of columns that have room
        for (let i = 0; i < grid.columns; i += apart) pen.fillText(grid.first + i, (i + 0.5) * grid.wide, 9);
        for (const it of found) {
            pen.fillStyle = pen.strokeStyle = colourOf(it.thread >> 5);
            const box = [(it.first - grid.first) * grid.wide + 1, 14, it.count * grid.wide - 2, 6];
            if (it.isRead) pen.strokeRect(...box);
            else pen.fillRect(...box);
        }
        const said = new Set(found.map((it) => `${it.isOpen ? "in flight" : "now"}: ${it.word} of ${data.threadName(it.thread)} `
            + `${it.isRead ? "reads" : "writes"} columns ${it.first} to ${it.first + it.count - 1}`));
        grid.uses.textContent = [...said].slice(0, 12).join("\n") || "nothing in flight";
        grid.uses.style.whiteSpace = "pre-wrap";
    }
    // Only what differs from what is shown: elements touched since, and those marked before and now.
    drawGrid(grid, marks) {
        const { data } = this, { first, end } = grid;
        const look = `${grid.room} ${dark()}`;
        const all = look !== grid.look;
        if (all) this.layOut(grid, look);
        const cells = new Set();
        const isShown = (cell) => cell >= first && cell < end && (cell - first) % grid.stride < grid.columns;
        const touched = (t) => {
            if (data.tRegion[t] !== grid.number) return;
            for (const cell of data.cellsOf(t)) if (isShown(cell)) cells.add(cell);
        };
        if (all) for (let cell = first; cell < end; cell++) isShown(cell) && cells.add(cell);
        else {
            const [from, to] = grid.step < this.step ? [grid.step, this.step] : [this.step, grid.step];
            for (let t = data.touchedIn[from + 1]; t < data.touchedIn[to + 1]; t++) touched(t);
            for (const cell of [...grid.marks.keys(), ...marks.keys()]) if (isShown(cell)) cells.add(cell);
        }
        grid.step = this.step;
        grid.marks = marks;
        for (const cell of cells) this.drawCell(grid, cell, marks.get(cell) || {});
    }
    layOut(grid, look) {
        const { columns, first, end, canvas } = grid;
        grid.wide = Math.max(5, Math.min(46, Math.floor((grid.room - 2) / columns)));
        grid.numbers = grid.wide >= 26;
        grid.high = grid.numbers ? 20 : Math.min(grid.wide, 14);
        const rows = Math.ceil((end - first) / grid.stride);
        const pen = (grid.pen = sized(canvas, columns * grid.wide + 1, rows * grid.high + 1));
        pen.font = `${grid.wide >= 36 ? 11 : 9}px ui-monospace, monospace`;
        pen.textBaseline = "middle";
        pen.textAlign = "center";
        pen.lineWidth = 1;
        grid.letter = pen.measureText("0").width;
        grid.look = look;
        grid.most ??= this.data.largest(grid.number);
        grid.colours = coloursOf("page", "ink", "line", "never");
    }
    drawCell(grid, cell, mark) {
        const { pen, wide, high, most, colours } = grid, i = cell - grid.first;
        const x = (i % grid.stride) * wide + 0.5, y = Math.floor(i / grid.stride) * high + 0.5;
        const { value, writer } = this.data.cell(grid.number, cell, this.step), number = Number(value);
        pen.fillStyle = colours.page;
        pen.fillRect(x + 0.5, y + 0.5, wide - 1, high - 1);
        if (mark.written) pen.fillStyle = mark.written;
        else if (value !== undefined && most && number) {
            const part = Number.isFinite(number) ? Math.min(1, Math.abs(number) / most) : 1;
            pen.fillStyle = (number < 0 ? "rgba(213, 94, 0, " : "rgba(0, 114, 178, ") + (0.08 + 0.42 * part) + ")";
        }
        pen.fillRect(x + 0.5, y + 0.5, wide - 1, high - 1);
        pen.strokeStyle = colours.line;
        pen.strokeRect(x, y, wide, high);
        if (value === undefined && writer === undefined) {
            pen.strokeStyle = colours.never;
            pen.beginPath();
            for (let d = 4; d < wide + high; d += 5) {
                pen.moveTo(x + Math.max(0, d - high), y + Math.min(d, high));
                pen.lineTo(x + Math.min(d, wide), y + Math.max(0, d - wide));
            }
            pen.stroke();
        } else if (grid.numbers && value !== undefined) {
            pen.fillStyle = mark.written ? colours.page : colours.ink;
            const text = fitting(value), isLong = text.length * grid.letter > wide - 2;
            pen.fillText(text, x + wide / 2, y + high / 2 + 1, ...(isLong ? [wide - 2] : []));
        }
        if (mark.read) {
            pen.strokeStyle = mark.read;
            pen.lineWidth = 2;
            pen.strokeRect(x + 1.5, y + 1.5, wide - 3, high - 3);
            pen.lineWidth = 1;
        }
    }
}

// ---- Which lane has which element of a product of tensor cores

class Fragments {
    constructor(data) {
        this.data = data;
        this.has = Object.keys(data.products).length > 0;
        byId("fragments").hidden = !this.has;
        byId("matrices").onmouseleave = (event) => tip(event, "");
    }
    recolour() {
        this.key = "";
    }
    // The warp's product of this step, or its last before.
    productAt(warp, step) {
        const mine = this.data.flightsOfWarp[warp].filter((it) => it.from <= step && this.data.products[it.word]);
        return mine[mine.length - 1];
    }
    draw(step, thread) {
        if (!this.has) return;
        const it = this.productAt(thread >> 5, step), product = it && this.data.products[it.word];
        const box = byId("matrices");
        if (!product) return box.replaceChildren(element("span", "no product of this warp so far", { class: "soft" }));
        const { m, n, k, bits, a, d, ofWarpgroup } = product, lane = thread & 31;
        const said = `${this.data.words[it.word]}, step ${this.data.rNumber[it.from]}: m${m}n${n}k${k}, ${a} to ${d}; `
            + `a number is the lane that has the element, lane ${lane} is marked`
            + (ofWarpgroup ? "; the 16 rows of this warp; what a descriptor names lies in shared memory" : "");
        if (this.key === said && box.childElementCount > 1) return;
        this.key = said;
        const parts = [element("div", said, { class: "soft" })];
        for (const [name, rows, columns, owner] of fragments(m, n, k, bits))
            if (!ofWarpgroup || name.endsWith("D")) parts.push(this.matrix(name, rows, columns, owner, lane));
        if (parts.length === 1) parts.push(element("div", "The lanes of this shape are not drawn.", { class: "soft" }));
        box.replaceChildren(...parts);
    }
    matrix(name, rows, columns, owner, lane) {
        const box = element("div", "", { class: "matrix" }), canvas = element("canvas");
        box.append(element("div", `${name} (${rows} x ${columns})`), canvas);
        const wide = 19, high = 14, pen = sized(canvas, columns * wide + 1, rows * high + 1);
        const colours = coloursOf("strong", "line", "page", "ink");
        pen.font = "9px ui-monospace, monospace";
        pen.textBaseline = "middle";
        pen.textAlign = "center";
        for (let row = 0; row < rows; row++)
            for (let column = 0; column < columns; column++) {
                const [who] = owner(row, column), x = column * wide + 0.5, y = row * high + 0.5;
                pen.fillStyle = who === lane ? colours.strong : `hsl(${(who * 47) % 360} 45% ${dark() ? 30 : 86}%)`;
                pen.fillRect(x, y, wide, high);
                pen.strokeStyle = colours.line;
                pen.strokeRect(x, y, wide, high);
                pen.fillStyle = who === lane ? colours.page : colours.ink;
                pen.fillText(who, x + wide / 2, y + high / 2 + 1);
            }
        canvas.onmousemove = (event) => {
            const row = Math.floor(event.offsetY / high), column = Math.floor(event.offsetX / wide);
            if (row >= rows || column >= columns) return tip(event, "");
            const [who, register, part, parts] = owner(row, column);
            tip(event, `row ${row}, column ${column}: lane ${who}, register ${register}` + (parts > 1 ? `, part ${part} of ${parts}` : ""));
        };
        return box;
    }
}

// Name, rows, columns, and of an element: lane, register, which part of it of how many. As PTX's
// chapter on mma.sync and wgmma has them: eight rows for 32 lanes, four lanes in a row.
function fragments(m, n, k, bits) {
    if (m !== 16 || n % 8) return [];
    const each = Math.max(1, 32 / bits);
    const d = (row, column) => [(row % 8) * 4 + ((column % 8) >> 1), (column >> 3) * 4 + (row >> 3) * 2 + (column & 1), 0, 1];
    if (n !== 8 || bits > 32) return bits > 32 ? [] : [["D", m, n, d]];
    const a = (row, column) => {
        const group = Math.floor(column / each);
        return [(row % 8) * 4 + (group % 4), Math.floor(group / 4) * 2 + (row >> 3), column % each, each];
    };
    const b = (row, column) => {
        const group = Math.floor(row / each);
        return [column * 4 + (group % 4), Math.floor(group / 4), row % each, each];
    };
    return [["A", m, k, a], ["B", k, n, b], ["C and D", m, n, d]];
}

function fitting(value) {
    if (typeof value !== "number" || Number.isInteger(value)) return String(value).slice(0, 7);
    const text = String(Number(value.toPrecision(3)));
    return text.length > 7 ? value.toExponential(0) : text;
}

// What each warp asks of memory in a step, as the hardware serves it: sectors of 32 bytes, or passes
// over 32 banks. A lane's n-th access of a kind goes with the others' n-th.
function requests(data, step) {
    const found = new Map(), nth = new Map();
    for (let t = data.touchedIn[step]; t < data.touchedIn[step + 1]; t++) {
        if (data.tHow[t] > 2) continue; // not a thread's own
        const of = [data.tThread[t] >> 5, data.tHow[t], data.tRegion[t]].join();
        const own = of + "," + data.tThread[t];
        nth.set(own, (nth.get(own) || 0) + 1);
        const key = of + "," + nth.get(own);
        if (!found.has(key)) found.set(key, []);
        found.get(key).push(t);
    }
    return [...found].slice(0, 24).map(([key, touches]) => {
        const [warp, how, number] = key.split(",").map(Number), region = data.regions[number];
        const what = ["reads", "writes", "updates"][how], size = data.tSize[touches[0]];
        const begin = Number(BigInt(region.begin) % 1024n);
        let cost;
        if (region.shared) {
            const together = size > 4 ? Math.max(1, 128 / size) : WARP;
            let passes = 0, parts = 0;
            for (let i = 0; i < WARP; i += together) {
                const banks = new Map();
                for (const t of touches) {
                    const lane = data.tThread[t] & 31;
                    if (lane < i || lane >= i + together) continue;
                    for (let at = 0; at < size; at += 4) {
                        const word = Math.floor((begin + data.tOffset[t] + at) / 4);
                        if (!banks.has(word % 32)) banks.set(word % 32, new Set());
                        banks.get(word % 32).add(word);
                    }
                }
                if (!banks.size) continue;
                passes += Math.max(...[...banks.values()].map((words) => words.size));
                parts++;
            }
            cost = `${passes} pass${passes === 1 ? "" : "es"}` + (passes > parts ? `, bank conflict (${parts} without)` : "");
        } else {
            const sectors = new Set(), bytes = new Set();
            for (const t of touches)
                for (let at = 0; at < size; at++) {
                    sectors.add(Math.floor((begin + data.tOffset[t] + at) / 32));
                    bytes.add(data.tOffset[t] + at);
                }
            const least = Math.ceil(bytes.size / 32);
            cost = `${sectors.size} sector${sectors.size === 1 ? "" : "s"}` + (sectors.size > least ? ` (${least} would do)` : "");
        }
        return `${data.warpName(warp)} ${what} ${region.name}: ${touches.length} lane${touches.length === 1 ? "" : "s"} x ${size} bytes, ${cost}`;
    });
}
