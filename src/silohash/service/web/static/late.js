// Results that arrive: those of fast silos are shown at once, and those of late silos when they come. What a person reads
// does not move: if further results would change the order of those that are shown, a button offers them.

import { identity, keepSelection } from "./select.js";
import { t } from "./texts.js";

const TYPE = "text/event-stream";

/** Return the parts of an answer that this page uses, of which the text comes as a stream. */
export function received(answer) {
  const { redirected, url, headers, body } = answer;
  return { redirected, url, type: headers.get("content-type") ?? "", text: body.pipeThrough(new TextDecoderStream()) };
}

/**
 * Yield the page of an answer or, if it has events, the page of each. The last one has all results.
 *
 * @throws {TypeError} if the answer ends before all results have come
 */
export async function* pagesOf({ type, text }) {
  const parsed = (page) => new DOMParser().parseFromString(page, "text/html");
  const reader = text.getReader();
  let [rest, name] = ["", ""];
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    rest += part.value;
    if (!type.startsWith(TYPE)) continue;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [first, ...lines] = event.split("\n");
      name = first.slice("event: ".length);
      yield parsed(lines.map((line) => line.slice("data: ".length)).join("\n"));
    }
  }
  if (!type.startsWith(TYPE)) yield parsed(rest);
  else if (name !== "result") throw new TypeError("The connection ended before all silos had answered.");
}

/** Return whether all results that are shown keep their places and their texts if those of a page take their place. */
function keepsPlaces(cards, fresh) {
  const isSame = (one, other) => other && identity(one) === identity(other) && one.textContent === other.textContent;
  return cards.every((card, place) => isSame(card, fresh[place]));
}

let offered = null; // the page of further results that a button offers

/**
 * Show further results in place, or offer them with a button if results would move or are being used.
 *
 * @param {Document} page the page with them
 * @param {(page: Document) => void} show called to put a page in place of the present one
 */
export function showLate(page, show) {
  const results = document.getElementById("results");
  const [cards, fresh] = [results, page].map((each) => [...each.querySelectorAll(".grid > .card")]);
  const isUsed = results.contains(document.activeElement) || document.querySelector("#results details[open], .menu[open], #late button");
  if (isUsed || !keepsPlaces(cards, fresh)) return offer(page, cards, fresh, show);
  keepSelection(() => {
    cards.forEach((card, place) => fresh[place].replaceWith(card)); // it has its picture already
    if (!page.getElementById("late")) closeLine(page);
    show(page);
  });
}

/** Let the line on late silos stay in a page with all results, so that nothing moves. It holds the note on silent silos. */
function closeLine(page) {
  const note = page.querySelector("#results .warning");
  const line = document.getElementById("late");
  line.replaceChildren(note ?? Object.assign(document.createElement("p"), { textContent: t("late_done") }));
  page.querySelector("#results .shown")?.before(line);
}

/** Offer a page with a button, and say how many of its results are new. */
function offer(page, cards, fresh, show) {
  const known = new Set(cards.map(identity));
  const count = fresh.filter((card) => !known.has(identity(card))).length;
  const text = count ? t("late_new", { count }) : t("late_changed");
  offered = page;
  tell(text);
  const line = document.getElementById("late");
  if (line.querySelector("button")) return;
  const button = Object.assign(document.createElement("button"), { type: "button", className: "button", textContent: t("late_show") });
  button.addEventListener("click", () => keepSelection(() => show(offered)));
  line.append(button);
}

/** Say something in the line on late silos, and to screen readers. */
export function tell(text) {
  document.querySelector("#late p").textContent = text;
  document.getElementById("announce").textContent = text;
}
