// The data of a trace: what was true after each step.
"use strict";

const WARP = 32;

async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return await new Response(stream).arrayBuffer();
}

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array };

class TraceData {
    constructor(facts, buffer) {
        Object.assign(this, facts);
        // Threads of several blocks: each block's first one is that of a warp.
        this.perBlock = this.extent[0] * this.extent[1] * this.extent[2];
        this.warpsPerBlock = Math.ceil(this.perBlock / WARP);
        this.warps = this.warpsPerBlock * this.blocks.length;
        this.threads = this.warps * WARP;
        let at = 0;
        for (const [name, kind, count] of this.columns) {
            this[name] = new ARRAYS[kind](buffer, at, count);
            at += Math.ceil(this[name].byteLength / 8) * 8;
        }
        this.buildSteps();
        this.buildChanges();
        this.buildTouches();
        this.buildWaits();
        this.buildFlights();
        this.buildTensorWork();
    }

    // Of each region of tensor memory who uses which columns, in order.
    buildTensorWork() {
        this.tensorWork = this.regions.map(() => []);
        for (let n = 0; n < this.nRound.length; n++)
            this.tensorWork[this.nRegion[n]].push({ from: this.nRound[n], until: this.nUntil[n], thread: this.nThread[n],
                word: this.words[this.nWord[n]], isRead: !!this.nIsRead[n], first: this.nFirst[n], count: this.nCount[n] });
    }
    // Those under way after a step, and the accesses of the step itself.
    tensorUsesAt(region, step) {
        return this.tensorWork[region].filter((it) => it.from === step || (it.from < step && step < it.until))
            .map((it) => ({ ...it, isOpen: it.until > step }));
    }
    // The last that has written a cell: of accesses, by a warp that reaches its lane.
    lastTensorWrite(region, cell, step) {
        const lane = Math.floor(cell / 512), column = cell % 512;
        const wrote = this.tensorWork[region].filter((it) => !it.isRead && it.until <= step && column >= it.first && column < it.first + it.count
            && (!it.word.startsWith("tcgen05.st") || (it.thread >> 5) % 4 === lane >> 5));
        return wrote.reduce((last, it) => (!last || it.until >= last.until ? it : last), undefined);
    }

    // Of each thread: its steps, as positions in the table of groups, with the position of the
    // step of the function that called its function.
    buildSteps() {
        this.ofThread = Array.from({ length: this.threads }, () => []);
        this.groupsOfWarp = Array.from({ length: this.warps }, () => []);
        const counts = (this.counts = new Map()); // file:line -> [runs, lanes]
        for (let g = 0; g < this.gRound.length; g++) {
            const warp = this.gWarp[g];
            this.groupsOfWarp[warp].push(g);
            let lanes = 0;
            for (let lane = 0; lane < WARP; lane++)
                if ((this.gLanes[g] >>> lane) & 1) {
                    this.ofThread[warp * WARP + lane].push(g);
                    lanes++;
                }
            const place = this.places[this.gPlace[g]];
            const key = place[0] + ":" + place[1];
            if (this.gDepth[g] >> 15) continue; // goes on after a call
            if (!counts.has(key)) counts.set(key, [0, 0]);
            counts.get(key)[0]++;
            counts.get(key)[1] += lanes;
        }
    }

    buildChanges() {
        this.histories = new Map();
        this.changedIn = indexed(this.cRound, this.steps);
        let at = 0;
        const variables = this.variables.length;
        for (let c = 0; c < this.cRound.length; c++) {
            const key = this.cThread[c] * variables + this.cVariable[c];
            let history = this.histories.get(key);
            if (!history) this.histories.set(key, (history = [[], []]));
            history[0].push(this.cRound[c]);
            history[1].push(at);
            at += this.types[this.variables[this.cVariable[c]][1]][1];
        }
    }

    buildTouches() {
        this.touchedIn = indexed(this.tRound, this.steps);
        this.tAt = new Uint32Array(this.tRound.length);
        let at = 0;
        for (let t = 0; t < this.tRound.length; t++) {
            this.tAt[t] = at;
            at += this.tSize[t];
        }
        this.cells = this.regions.map(() => new Map()); // element -> positions of its touches
        this.written = this.regions.map(() => new Map()); // and of those that write
        for (let t = 0; t < this.tRound.length; t++)
            for (const cells of [this.cells, ...(this.isRead(t) ? [] : [this.written])])
                for (const cell of this.cellsOf(t)) {
                    const found = cells[this.tRegion[t]].get(cell);
                    if (found) found.push(t);
                    else cells[this.tRegion[t]].set(cell, [t]);
                }
        this.tView = new DataView(this.tBytes.buffer, this.tBytes.byteOffset);
        this.bView = new DataView(this.bBytes.buffer, this.bBytes.byteOffset);
        this.before = this.regions.map(() => []);
        at = 0;
        for (let b = 0; b < this.bRegion.length; b++) {
            this.before[this.bRegion[b]].push([this.bOffset[b], this.bSize[b], at]);
            at += this.bSize[b];
        }
        for (const stretches of this.before) stretches.sort((a, b) => a[0] - b[0]);
    }

    // The elements of a touch.
    *cellsOf(t) {
        const size = this.regions[this.tRegion[t]].size, end = (this.tOffset[t] + this.tSize[t]) / size;
        for (let cell = Math.floor(this.tOffset[t] / size); cell < end; cell++) yield cell;
    }

    // The largest size of a number that an element of a region has at any time.
    largest(region) {
        const { kind, size } = this.regions[region];
        let most = 0;
        const look = (bytes, at, count) => {
            const view = new DataView(bytes.buffer, bytes.byteOffset);
            for (let i = 0; i + size <= count; i += size) {
                const it = Math.abs(Number(scalar(view, at + i, kind, size)));
                if (it > most && it < Infinity) most = it;
            }
        };
        for (let t = 0; t < this.tRegion.length; t++)
            if (this.tRegion[t] === region) look(this.tBytes, this.tAt[t], this.tSize[t]);
        for (const [, count, at] of this.before[region]) look(this.bBytes, at, count);
        return most;
    }

    buildWaits() {
        this.waitsOfWarp = Array.from({ length: this.warps }, () => []);
        for (let w = 0; w < this.wRound.length; w++) {
            const rows = this.waitsOfWarp[this.wWarp[w]];
            const last = rows[rows.length - 1];
            const row = { lanes: this.wLanes[w], word: this.words[this.wWord[w]] };
            if (!row.word) rows.push({ round: this.wRound[w], alive: row.lanes, waits: [] });
            else last.waits.push(row);
        }
    }

    // Of each warp what is in flight, each in a row of its own where two are at once; and of each
    // mbarrier what happened to it, with its phase and who is still to come.
    buildFlights() {
        this.flightsOfWarp = Array.from({ length: this.warps }, () => []);
        this.flightRows = new Array(this.warps).fill(0);
        const ends = Array.from({ length: this.warps }, () => []);
        for (let f = 0; f < this.fRound.length; f++) {
            const warp = this.fWarp[f], rows = ends[warp];
            const it = { from: this.fRound[f], until: this.fUntil[f], word: this.fWord[f], count: this.fCount[f] };
            it.isProduct = it.word in this.products || /^(wgmma|tcgen05\.(mma|commit))/.test(this.words[it.word]);
            if (it.from === it.until) it.row = -1; // done at once
            else {
                it.row = rows.findIndex((end) => end <= it.from);
                if (it.row < 0) it.row = rows.length < 6 ? rows.length : 5;
                rows[it.row] = it.until;
                this.flightRows[warp] = rows.length;
            }
            this.flightsOfWarp[warp].push(it);
        }
        this.changesOfBarrier = this.mbarriers.map(() => []);
        for (let m = 0; m < this.mRound.length; m++) {
            const rows = this.changesOfBarrier[this.mBarrier[m]], last = rows[rows.length - 1];
            const it = { round: this.mRound[m], thread: this.mThread[m], word: this.words[this.mWord[m]],
                count: last ? last.count : 0, phase: last ? last.phase : 0, left: last ? last.left : 0, bytes: last ? last.bytes : 0 };
            if (this.mInit[m]) it.count = it.left = this.mArriving[m], it.phase = it.bytes = 0;
            else it.left -= this.mArriving[m], it.bytes += this.mBytes[m];
            if (this.mEnded[m]) it.phase++, (it.left = it.count), (it.bytes = 0);
            rows.push(it);
        }
    }

    // Which living lanes of the block have not come to where lanes of this warp wait: for a barrier
    // of the block those of all warps, else those of the warp.
    awaited(warp, step, word) {
        const first = warp - (warp % this.warpsPerBlock), said = [];
        const own = !/^(__syncthreads|barrier|bar\.|cluster|grid)/.test(word);
        for (let w = own ? warp : first; w < (own ? warp + 1 : first + this.warpsPerBlock); w++) {
            const { alive, waits } = this.waitsAt(w, step);
            let lanes = alive;
            for (const it of waits) if (it.word === word) lanes &= ~it.lanes;
            if (lanes) said.push(`${this.warpName(w)} lanes ${lanesText(lanes)}`);
        }
        return said.join("; ");
    }

    // ---- Questions

    groupOf(thread, step) {
        const mine = this.ofThread[thread];
        const at = after(mine, step, (g) => this.gRound[g]);
        return at ? mine[at - 1] : -1;
    }

    // The groups of a warp that ran a line in this very step.
    groupsIn(warp, step) {
        const mine = this.groupsOfWarp[warp];
        const end = after(mine, step, (g) => this.gRound[g]);
        const begin = after(mine, step - 1, (g) => this.gRound[g]);
        return mine.slice(begin, end);
    }

    waitsAt(warp, step) {
        const rows = this.waitsOfWarp[warp];
        const at = after(rows, step, (row) => row.round);
        return at ? rows[at - 1] : { alive: 0, waits: [] };
    }

    // Name, value and whether this step changed it, of what the thread can name.
    locals(thread, step) {
        const g = this.groupOf(thread, step);
        if (g < 0) return [];
        const [, line, , scope] = this.places[this.gPlace[g]];
        const found = [];
        for (const v of this.scopes[scope]) {
            const [name, kind, declared] = this.variables[v];
            const history = this.histories.get(thread * this.variables.length + v);
            const at = history ? after(history[0], step, (round) => round) : 0;
            const what = this.types[kind];
            if (!at || declared > line || (what[0] === "struct" && !what[3].length)) continue;
            const view = new DataView(this.cBytes.buffer, this.cBytes.byteOffset + history[1][at - 1]);
            found.push({
                name,
                value: this.valueOf(view, 0, kind),
                changed: history[0][at - 1] === step,
                since: history[0][at - 1],
            });
        }
        return found;
    }

    valueOf(view, at, kind) {
        const [what, size, ...more] = this.types[kind];
        if (what === "array")
            return Array.from({ length: more[1] }, (_, i) =>
                this.valueOf(view, at + i * this.types[more[0]][1], more[0]));
        if (what === "struct") {
            const members = {};
            for (const [name, offset, of] of more[1]) {
                const value = this.valueOf(view, at + offset, of);
                if (!name && value && value.constructor === Object) Object.assign(members, value);
                else members[name] = value;
            }
            return members;
        }
        if (what === "ptr") return this.pointer(view.getBigUint64(at, true), this.types[more[0]][1]);
        if (what === "enum") {
            const number = scalar(view, at, "u", size);
            return more[0][number] ?? number;
        }
        return scalar(view, at, what, size);
    }

    pointer(address, size) {
        if (!address) return "nullptr";
        for (const room of [-1, 0]) // first where it lies in memory, then where it is just behind some
            for (const region of this.regions) {
                const offset = Number(address - BigInt(region.begin));
                if (offset >= 0 && offset <= region.bytes + room)
                    return region.name + (size && offset ? " + " + offset / size : "");
            }
        return "0x" + address.toString(16);
    }

    // What lies in an element after a step, and the touch that wrote it: undefined where nobody has.
    cell(region, cell, step) {
        const it = this.regions[region];
        const touches = this.written[region].get(cell) || [];
        const t = after(touches, step, (t) => this.tRound[t]);
        const offset = cell * it.size;
        if (t) {
            const writer = touches[t - 1];
            const within = offset - this.tOffset[writer];
            if (within < 0 || within + it.size > this.tSize[writer]) return { writer };
            return { value: scalar(this.tView, this.tAt[writer] + within, it.kind, it.size), writer };
        }
        const stretches = this.before[region];
        const at = after(stretches, offset, (stretch) => stretch[0]);
        if (!at) return {};
        const [begin, bytes, where] = stretches[at - 1];
        if (offset + it.size > begin + bytes) return {};
        return { value: scalar(this.bView, where + offset - begin, it.kind, it.size) };
    }

    // By a thread, or by a copy or a product that it has asked for.
    isRead(t) {
        return this.tHow[t] === 0 || this.tHow[t] === 4;
    }

    isThread(thread) {
        return thread < this.threads && thread % (this.warpsPerBlock * WARP) < this.perBlock;
    }

    threadName(thread) {
        const [x, y] = this.extent, own = thread % (this.warpsPerBlock * WARP);
        const of = this.blocks.length > 1 ? ` of block (${this.blocks[(thread - own) / WARP / this.warpsPerBlock].join(", ")})` : "";
        if (this.extent[1] * this.extent[2] === 1) return "thread " + own + of;
        return `thread (${own % x}, ${Math.floor(own / x) % y}, ${Math.floor(own / x / y)})${of}`;
    }

    // w3; of several blocks: b1.w3
    warpName(warp) {
        const own = warp % this.warpsPerBlock;
        return this.blocks.length > 1 ? `b${(warp - own) / this.warpsPerBlock}.w${own}` : "w" + warp;
    }

    elementName(region, cell) {
        const shape = this.regions[region].shape;
        const at = [];
        for (let i = shape.length - 1; i >= 0; i--) {
            at.unshift(cell % shape[i]);
            cell = Math.floor(cell / shape[i]);
        }
        return this.regions[region].name + "[" + at.join(this.regions[region].shared ? "][" : ", ") + "]";
    }
}

// How many rows come before or at a step, of rows in ascending order.
function after(rows, step, of) {
    let low = 0, high = rows.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (of(rows[middle]) <= step) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Of a sorted column: where each step begins.
function indexed(column, steps) {
    const begins = new Uint32Array(steps + 2);
    for (let i = 0; i < column.length; i++) begins[column[i] + 1]++;
    for (let i = 1; i < begins.length; i++) begins[i] += begins[i - 1];
    return begins;
}

function scalar(view, at, kind, size) {
    if (kind === "bool") return view.getUint8(at) !== 0;
    if (kind === "bf16") {
        const whole = new DataView(new ArrayBuffer(4));
        whole.setUint16(2, view.getUint16(at, true), true);
        return whole.getFloat32(0, true);
    }
    if (kind === "f16") {
        const bits = view.getUint16(at, true), exponent = (bits >> 10) & 31, part = bits & 1023;
        const size = exponent === 31 ? (part ? NaN : Infinity)
            : exponent ? 2 ** (exponent - 15) * (1 + part / 1024) : part * 2 ** -24;
        return bits >> 15 ? -size : size;
    }
    if (kind === "f") return size === 8 ? view.getFloat64(at, true) : view.getFloat32(at, true);
    if (kind === "char" && size === 1) {
        const code = view.getUint8(at);
        return code >= 32 && code < 127 ? JSON.stringify(String.fromCharCode(code)) : code;
    }
    const signed = kind === "i";
    if (size === 8) return signed ? view.getBigInt64(at, true) : view.getBigUint64(at, true);
    const read = "get" + (signed ? "Int" : "Uint") + 8 * size;
    if (view[read]) return view[read](at, true);
    let text = "0x";
    for (let i = size - 1; i >= 0; i--) text += view.getUint8(at + i).toString(16).padStart(2, "0");
    return text;
}

// As a person reads it: seven digits of a float.
function shown(value) {
    if (typeof value === "number" && !Number.isInteger(value))
        return Number.isFinite(value) ? String(Number(value.toPrecision(7))) : String(value);
    if (Array.isArray(value)) {
        const most = 64, said = value.slice(0, most).map(shown);
        return "[" + said.join(", ") + (value.length > most ? ", … " + value.length : "") + "]";
    }
    if (value && typeof value === "object")
        return "{" + Object.entries(value).map(([name, it]) => name + ": " + shown(it)).join(", ") + "}";
    return String(value);
}
