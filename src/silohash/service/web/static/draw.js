// The surface to draw on. Each finished stroke is searched for: the strokes are scaled to one size and drawn with a pen of
// a fixed share of it, as the strokes of a font are, so that small and large drawings give the same picture.

const PEN_SHARE = 0.11; // width of the pen, as a share of the drawing's longer side
const SENT_PIXELS = 256;
const MARGIN = 0.14;
const WAIT_MS = 300;

/**
 * Make the drawing panel work.
 *
 * @param {(file: Blob) => void} search called with the drawing, dark on white, after each stroke
 */
export function startDrawing(search) {
  const panel = document.getElementById("draw");
  const opener = document.getElementById("draw-open");
  const canvas = document.getElementById("canvas");
  const pen = canvas.getContext("2d");
  let strokes = [];
  let timer = 0;

  function paint() {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    drawStrokes(pen, strokes, (point) => point, canvas.width / 20);
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (strokes.length) search(await pictureOf(strokes));
    }, WAIT_MS);
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    const scale = canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    clearTimeout(timer);
    strokes.push([place(event)]);
    paint();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) strokes.at(-1).push(place(each));
    paint();
  });
  canvas.addEventListener("pointerup", later);
  canvas.addEventListener("pointercancel", later);

  document.getElementById("undo").addEventListener("click", () => {
    strokes.pop();
    paint();
    later();
  });
  document.getElementById("wipe").addEventListener("click", () => {
    strokes = [];
    clearTimeout(timer);
    paint();
  });

  function open(shown) {
    panel.hidden = !shown;
    opener.setAttribute("aria-expanded", String(shown));
    document.documentElement.classList.toggle("drawing", shown); // so that results do not move the surface
    (shown ? canvas : opener).focus();
  }
  opener.addEventListener("click", () => open(panel.hidden));
  document.getElementById("draw-close").addEventListener("click", () => open(false));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || panel.hidden) return;
    event.preventDefault(); // Escape would also empty the search box
    open(false);
  });
}

/** Draw strokes with a round pen. */
function drawStrokes(pen, strokes, move, width) {
  pen.lineWidth = width;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = pen.fillStyle = "#000";
  for (const stroke of strokes) {
    const points = stroke.map(move);
    pen.beginPath();
    pen.moveTo(...points[0]);
    for (const point of points.slice(1)) pen.lineTo(...point);
    if (points.length === 1) pen.lineTo(points[0][0] + 0.01, points[0][1]);
    pen.stroke();
  }
}

/** Return strokes as a PNG file: scaled to one size, centered, black on white. */
function pictureOf(strokes) {
  const across = strokes.flat().map(([x]) => x);
  const down = strokes.flat().map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...across), Math.max(...across), Math.min(...down), Math.max(...down)];
  const room = SENT_PIXELS * (1 - 2 * MARGIN);
  const scale = room / Math.max(right - left, bottom - top, 1);
  const canvas = Object.assign(document.createElement("canvas"), { width: SENT_PIXELS, height: SENT_PIXELS });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, SENT_PIXELS, SENT_PIXELS);
  const move = ([x, y]) => [
    SENT_PIXELS / 2 + (x - (left + right) / 2) * scale,
    SENT_PIXELS / 2 + (y - (top + bottom) / 2) * scale,
  ];
  const dot = Math.max(right - left, bottom - top) < 4;
  drawStrokes(pen, strokes, dot ? () => [SENT_PIXELS / 2, SENT_PIXELS / 2] : move, room * PEN_SHARE);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
