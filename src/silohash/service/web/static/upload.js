// A picture on its way to the service: scaled down first, with a thumbnail, a bar of progress, and a button that cancels.

import { t, written } from "./texts.js";

const LONGEST_SIDE = 1024; // in pixels. Models look at pictures of less.
const QUALITY = 0.92;
const DIGITS = { minimumFractionDigits: 1, maximumFractionDigits: 1 };

/** Return a picture file scaled down, or the file itself if it is small or of a format that the browser cannot decode. */
async function scaledDown(file) {
  try {
    const picture = await createImageBitmap(file);
    const scale = LONGEST_SIDE / Math.max(picture.width, picture.height);
    if (scale >= 1) return file;
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(picture.width * scale));
    canvas.height = Math.max(1, Math.round(picture.height * scale));
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    picture.close();
    // PNG keeps what is transparent. Photographs come as JPEG, where it would be several times as large.
    const type = file.type === "image/jpeg" ? file.type : "image/png";
    const scaled = await new Promise((done) => canvas.toBlob(done, type, QUALITY));
    return scaled ?? file;
  } catch {
    return file;
  }
}

/**
 * Return a picture file in the form in which it is sent.
 *
 * @param {number} mostBytes the largest file that the service takes
 * @throws {RangeError} if the file is too large, with a message for people
 */
export async function prepared(file, mostBytes) {
  const sent = await scaledDown(file);
  if (sent.size <= mostBytes) return sent;
  const [size, most] = [sent.size, mostBytes].map((count) => `${written(count / 1e6, DIGITS)} MB`);
  throw new RangeError(t("too_large", { size, most }));
}

/**
 * Send a form, and return the answer as `received` in `late.js` does.
 *
 * @param {(share: number) => void} [progress] called with the share that is sent, from 0 to 1
 */
export function send(address, body, { signal, progress, headers }) {
  const request = new XMLHttpRequest(); // because fetch does not tell how much is sent
  let text;
  const stream = new ReadableStream({ start: (controller) => (text = controller) });
  let taken = 0;
  const take = () => {
    text.enqueue(request.responseText.slice(taken));
    taken = request.responseText.length;
  };
  return new Promise((done, fail) => {
    const end = (error) => [fail, (each) => text.error(each)].forEach((each) => each(error));
    signal.throwIfAborted();
    signal.addEventListener("abort", () => request.abort());
    request.upload.addEventListener("progress", ({ loaded, total }) => progress?.(loaded / total));
    request.addEventListener("readystatechange", () => {
      if (request.readyState !== XMLHttpRequest.HEADERS_RECEIVED) return;
      const redirected = request.responseURL !== new URL(address, location.href).href;
      done({ redirected, url: request.responseURL, type: request.getResponseHeader("content-type") ?? "", text: stream });
    });
    request.addEventListener("progress", take);
    request.addEventListener("load", () => {
      take();
      text.close();
    });
    request.addEventListener("error", () => end(new TypeError("There is no answer.")));
    request.addEventListener("abort", () => end(new DOMException("It was canceled.", "AbortError")));
    request.open("POST", address);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.send(body);
  });
}

let former = []; // what the chip of the picture on its way took the place of

/**
 * Show a picture that is on its way, in place of the picture of the search.
 *
 * @param {() => void} cancel called when its button is pressed
 * @returns what to call with the share that is sent, and what to call at the end, which brings the former picture back
 */
export function showSending(file, cancel) {
  const chosen = document.getElementById("chosen");
  const chip = Object.assign(document.createElement("span"), { className: "chip sending" });
  const address = URL.createObjectURL(file);
  const thumbnail = Object.assign(document.createElement("img"), { alt: "", width: 40, height: 40, src: address });
  thumbnail.addEventListener("error", () => (thumbnail.hidden = true)); // of a format that the browser cannot decode
  const bar = document.createElement("progress");
  bar.setAttribute("aria-label", t("sending_bar"));
  const button = Object.assign(document.createElement("button"), { type: "button", className: "cancel" });
  button.textContent = t("cancel");
  button.addEventListener("click", cancel);
  chip.append(thumbnail, bar, button);
  if (!chosen.querySelector(".sending")) former = [...chosen.childNodes];
  chosen.replaceChildren(chip);
  return {
    progress: (share) => (bar.value = share),
    end() {
      URL.revokeObjectURL(address);
      if (chip.isConnected) chosen.replaceChildren(...former);
    },
  };
}
