function setUpTimeline(canvas, line, colors) {
  const queues = ["load", "compute", "store"], srams = Object.keys(line.sram);
  const left = 62, laneTop = 26, laneHeight = 34, gap = 6, sramHeight = 30, column = 3, mostBoxes = 4000;
  const top = (row) => laneTop + row * (laneHeight + gap);
  const sramTop = (row) => top(3) + 4 + row * (sramHeight + gap);
  const height = sramTop(srams.length) + 16;
  const events = queues.map(() => []), covered = queues.map(() => []), all = [];
  for (const [queue, free, index, name, kind, startup, port, work, ...waits] of line.exact) {
    let start = free;
    for (let i = 1; i < waits.length; i += 2) start += waits[i];
    const one = {queue, free, start, end: start + startup + port + work, index, name, kind, startup, port, work, waits};
    all.push(one);
    events[queue].push(one);
    const runs = covered[queue], last = runs[runs.length - 1];
    if (last && last[1] === one.free) last[1] = one.end; else runs.push([one.free, one.end]);
  }
  let from = 0, to = line.cycles, width = 0, drag = null;
  const context = canvas.getContext("2d");
  const x = (cycle) => left + (cycle - from) / (to - from) * (width - left);
  const cycleAt = (px) => from + (px - left) / (width - left) * (to - from);
  const number = (value) => Math.round(value).toLocaleString("en-US");
  function firstAfter(list, cycle) {
    let low = 0, high = list.length;
    while (low < high) { const mid = (low + high) >> 1; if (list[mid].end <= cycle) low = mid + 1; else high = mid; }
    return low;
  }
  function visible(queue) {
    const list = events[queue], found = [];
    for (let i = firstAfter(list, from); i < list.length && list[i].free < to; i++) {
      found.push(list[i]);
      if (found.length > mostBoxes) return null;
    }
    return found;
  }
  function perColumn() {
    const cycles = (to - from) / (width - left) * column;
    return Math.max(1, Math.ceil(cycles / line.bucket));
  }
  function shares(queue, bucket, count) {
    const lane = line.lanes[queues[queue]], found = [];
    for (const [kind, cycles] of Object.entries(lane)) {
      let sum = 0;
      for (let i = bucket; i < bucket + count && i < cycles.length; i++) sum += cycles[i];
      if (sum) found.push([Number(kind), sum]);
    }
    return found;
  }
  function columns(draw) {
    const count = perColumn();
    const begin = Math.floor(from / line.bucket / count) * count;
    for (let b = begin; b * line.bucket < to; b += count) {
      const end = Math.min(line.cycles, (b + count) * line.bucket);
      draw(b, count, b * line.bucket, end);
    }
  }
  function drawAggregate(queue) {
    columns((bucket, count, begin, end) => {
      let y = top(queue) + laneHeight;
      for (const [kind, cycles] of shares(queue, bucket, count)) {
        const tall = laneHeight * cycles / (end - begin), x0 = Math.max(left, x(begin));
        context.fillStyle = colors[kind];
        context.fillRect(x0, y - tall, Math.max(0, x(end) - x0), tall);
        y -= tall;
      }
    });
  }
  function box(queue, begin, end, fill) {
    const x0 = Math.max(left, x(begin)), x1 = Math.min(width, x(end));
    if (x1 <= x0) return 0;
    context.fillStyle = fill;
    context.fillRect(x0, top(queue), x1 - x0, laneHeight);
    return x1 - x0;
  }
  function drawExact(queue, boxes) {
    for (const [begin, end] of covered[queue])
      if (end > from && begin < to) box(queue, begin, end, color("--page"));
    for (const one of boxes) {
      let at = one.free;
      for (let i = 0; i < one.waits.length; i += 2) {
        box(queue, at, at + one.waits[i + 1], colors[one.waits[i]]);
        at += one.waits[i + 1];
      }
      const wide = box(queue, one.start, one.end, colors[one.kind]);
      if (wide > 3) {
        context.strokeStyle = color("--page");
        context.strokeRect(Math.max(left, x(one.start)) + 0.5, top(queue) + 0.5, wide - 1, laneHeight - 1);
      }
      const text = line.names[one.name];
      if (wide > 40) label(text, Math.max(left, x(one.start)) + 4, top(queue) + 21, wide - 8, "#10161c");
    }
  }
  function label(text, at, y, room, fill) {
    context.save();
    context.beginPath();
    context.rect(at, y - 14, room, 20);
    context.clip();
    context.fillStyle = fill;
    context.fillText(text, at, y);
    context.restore();
  }
  function drawTokens() {
    context.strokeStyle = color("--ink");
    context.fillStyle = color("--ink");
    for (const [push, pop] of line.tokens) {
      const a = all[push], b = all[pop];
      if (Math.max(a.end, b.start) < from || Math.min(a.end, b.start) > to) continue;
      const x0 = x(a.end), x1 = x(b.start), down = b.queue > a.queue;
      if (x0 < left || x1 < left) continue;
      const y0 = top(a.queue) + (down ? laneHeight : 0), y1 = top(b.queue) + (down ? 0 : laneHeight);
      context.beginPath(); context.moveTo(x0, y0); context.lineTo(x1, y1); context.stroke();
      const back = down ? -4 : 4;
      context.beginPath(); context.moveTo(x1, y1); context.lineTo(x1 - 3, y1 + back); context.lineTo(x1 + 3, y1 + back); context.fill();
    }
  }
  function drawLayers() {
    line.layers.forEach(([name, begin, end], i) => {
      const x0 = Math.max(left, x(begin)), x1 = Math.min(width, x(end));
      if (x1 <= x0) return;
      context.fillStyle = color(i % 2 ? "--line" : "--stripe");
      context.fillRect(x0, 2, x1 - x0, 20);
      if (x1 - x0 > 30) label(name, x0 + 4, 16, x1 - x0 - 6, color("--ink"));
    });
  }
  function drawBuffers() {
    srams.forEach((name, row) => {
      const {depth, most} = line.sram[name], y = sramTop(row);
      context.fillStyle = color("--stripe");
      context.fillRect(left, y, width - left, sramHeight);
      context.fillStyle = color("--accent");
      columns((bucket, count, begin, end) => {
        let peak = 0;
        for (let i = bucket; i < bucket + count && i < most.length; i++) peak = Math.max(peak, most[i]);
        const tall = sramHeight * peak / depth, x0 = Math.max(left, x(begin));
        context.fillRect(x0, y + sramHeight - tall, Math.max(0, x(end) - x0), tall);
      });
      const peak = most.reduce((a, b) => Math.max(a, b), 0);
      heading(`${name.toUpperCase()} ${Math.ceil(100 * peak / depth)} %`, y + sramHeight / 2 + 4);
    });
  }
  function heading(text, y) { context.fillStyle = color("--soft"); context.fillText(text, 0, y); }
  function draw() {
    const ratio = devicePixelRatio || 1;
    width = canvas.clientWidth;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const boxes = queues.map((_, queue) => visible(queue));
    const close = boxes.every((list) => list) && boxes.some((list) => list.length * 4 < width);
    heading("layers", 16);
    drawLayers();
    queues.forEach((name, queue) => {
      heading(name, top(queue) + 21);
      drawAggregate(queue);
      if (close) drawExact(queue, boxes[queue]);
    });
    if (close && boxes.flat().length * 8 < width) drawTokens();
    drawBuffers();
    context.textAlign = "left"; heading(`cycle ${number(from)}`, height - 3);
    context.textAlign = "right"; context.fillText(number(to), width, height - 3); context.textAlign = "left";
    canvas.exact = close;
  }
  function show(begin, end) {
    const span = Math.min(line.cycles, Math.max(20, end - begin));
    from = Math.max(0, Math.min(line.cycles - span, begin));
    to = from + span;
    draw();
  }
  function zoom(factor, middle) { show(middle - (middle - from) * factor, middle + (to - middle) * factor); }
  function aggregate(kinds, bucket, count) {
    const begin = bucket * line.bucket, end = Math.min(line.cycles, begin + count * line.bucket);
    const parts = kinds.map(([kind, n]) => `${line.kinds[kind]} ${number(n)}`);
    return `aggregate of cycles ${number(begin)} to ${number(end)}: ${parts.join(", ") || "drained"}`;
  }
  function describe(px, py) {
    const cycle = cycleAt(px), row = Math.floor((py - laneTop) / (laneHeight + gap));
    if (px < left) return "";
    const layer = line.layers.find(([, begin, end]) => begin <= cycle && cycle < end);
    const where = layer ? `${layer[0]} (${number(layer[2] - layer[1])} cycles)` : "";
    const count = perColumn(), bucket = Math.floor(cycle / line.bucket / count) * count;
    if (py < laneTop) return where;
    if (row < 3) {
      const one = events[row][firstAfter(events[row], cycle)];
      if (canvas.exact && one && one.free <= cycle) {
        const waits = [];
        for (let i = 0; i < one.waits.length; i += 2) waits.push(`${number(one.waits[i + 1])} ${line.kinds[one.waits[i]]}`);
        if (one.port) waits.push(`${number(one.port)} memory port`);
        return `${line.names[one.name]}, instruction ${one.index}: cycles ${number(one.start)} to ${number(one.end)}, ` +
          `startup ${one.startup}${waits.length ? `, waits ${waits.join(", ")}` : ""}. ${where}`;
      }
      return `${queues[row]}, ${aggregate(shares(row, bucket, count), bucket, count)}. ${where}`;
    }
    const name = srams[Math.floor((py - sramTop(0)) / (sramHeight + gap))];
    if (!name) return where;
    const {depth, most} = line.sram[name], peak = Math.max(...most.slice(bucket, bucket + count), 0);
    return `${name.toUpperCase()}: at most ${number(peak)} of ${number(depth)} elements live in cycles ` +
      `${number(bucket * line.bucket)} to ${number(Math.min(line.cycles, (bucket + count) * line.bucket))}. ${where}`;
  }
  const tip = document.getElementById("tip"), jump = document.getElementById("jump");
  line.layers.forEach(([name], i) => jump.add(new Option(name, i)));
  jump.addEventListener("change", () => {
    const layer = line.layers[jump.value === "" ? -1 : Number(jump.value)];
    if (layer) show(layer[1], layer[2]); else show(0, line.cycles);
  });
  canvas.addEventListener("pointerdown", (event) => {
    drag = {x: event.offsetX, from, to};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const shift = (drag.x - event.offsetX) / (width - left) * (drag.to - drag.from);
      show(drag.from + shift, drag.to + shift);
    }
    tip.textContent = describe(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, cycleAt(event.offsetX)));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, cycleAt(event.offsetX));
  }, {passive: false});
  canvas.addEventListener("keydown", (event) => {
    const span = to - from, steps = {ArrowLeft: -0.2, ArrowRight: 0.2};
    if (event.key in steps) show(from + span * steps[event.key], to + span * steps[event.key]);
    else if (event.key === "+") zoom(0.5, (from + to) / 2);
    else if (event.key === "-") zoom(2, (from + to) / 2);
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", () => zoom(Number(button.dataset.zoom), (from + to) / 2));
  for (const button of document.querySelectorAll("[data-pan]"))
    button.addEventListener("click", () => {
      const step = (to - from) * Number(button.dataset.pan);
      show(from + step, to + step);
    });
  addEventListener("resize", draw);
  addEventListener("beforeprint", draw);
  dark.addEventListener("change", draw);
  draw();
}
const lanes = document.getElementById("lanes");
if (lanes) setUpTimeline(lanes, page.timeline, page.colors);
