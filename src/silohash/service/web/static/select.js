// Results are selected, and exported or copied as links: those that are selected or, if none is, all that are shown.
// Everything is made here, from what the page has.

import { t } from "./texts.js";

const COLUMNS = ["id", "silo", "caption", "labels", "distance_bits", "rank", "score", "strength", "probability", "link"];
const TYPES = { csv: "text/csv", json: "application/json" };

const shown = () => [...document.querySelectorAll("#results .card[data-facts]")];
const picked = () => shown().filter((card) => card.querySelector(".pick input").checked);

/** Return the address of a card's item without the results that it is from. Relative addresses are those of this page. */
export function identity(card) {
  const { origin, pathname, searchParams } = new URL(card.querySelector("a").getAttribute("href"), location.href);
  const [silo, id] = ["silo", "id"].map((name) => searchParams.get(name));
  return `${origin}${pathname}?${new URLSearchParams({ silo, id })}`;
}

/** Return what is exported of a card. */
function record(card) {
  const link = identity(card);
  const [silo, id] = ["silo", "id"].map((name) => new URL(link).searchParams.get(name));
  const title = card.querySelector(".title").textContent;
  return { id, silo, caption: title === id ? "" : title, ...JSON.parse(card.dataset.facts), link };
}

/** Return a value as a field of a CSV file. A text that a spreadsheet would take for a formula begins with an apostrophe. */
function field(value) {
  const text = Array.isArray(value) ? value.join("|") : String(value ?? "");
  return `"${text.replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
}

function written(records, form) {
  if (form === "json") return JSON.stringify({ search: location.href, results: records }, null, 2);
  const rows = [COLUMNS, ...records.map((one) => COLUMNS.map((name) => one[name]))];
  return "\ufeff" + rows.map((row) => `${row.map(field).join(",")}\r\n`).join(""); // spreadsheets need the mark for UTF-8
}

function save(content, form) {
  const address = URL.createObjectURL(new Blob([content], { type: TYPES[form] }));
  Object.assign(document.createElement("a"), { href: address, download: `results.${form}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text }); // without TLS there is no clipboard
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Show how many results are selected, or what was done with them. */
function tell(done = "") {
  const some = picked().length;
  const unpick = document.getElementById("unpick");
  unpick.hidden = !some;
  unpick.querySelector("span:not(.hidden)").textContent = t("selected", { count: some });
  document.getElementById("copy-link").textContent = done || t("copy", { count: some || 1 });
  document.getElementById("picked").textContent = done || (some ? t("selected", { count: some }) : "");
}

/** Give each result that is shown a box to select it. */
export function offerSelection() {
  for (const card of shown()) {
    if (card.querySelector(".pick")) continue;
    const label = Object.assign(document.createElement("label"), { className: "pick" });
    const box = Object.assign(document.createElement("input"), { type: "checkbox", autocomplete: "off" });
    box.setAttribute("aria-label", t("select", { title: card.querySelector(".title").textContent }));
    label.append(box);
    card.querySelector("a").after(label);
  }
}

/** Let a function replace the results, and select those again that were selected and are still there. */
export function keepSelection(replace) {
  const former = new Set(picked().map(identity));
  replace();
  for (const card of shown()) card.querySelector(".pick input").checked = former.has(identity(card));
  if (former.size) tell();
}

document.addEventListener("change", (event) => event.target.closest(".pick") && tell());
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".actions button");
  if (!button) return;
  const some = picked();
  if (button.dataset.export) {
    save(written((some.length ? some : shown()).map(record), button.dataset.export), button.dataset.export);
  } else if (button.id === "copy-link") {
    await copy(some.length ? some.map((card) => record(card).link).join("\n") : location.href);
    tell(t("copied"));
    button.addEventListener("blur", () => tell(), { once: true });
  } else {
    for (const card of some) card.querySelector(".pick input").checked = false;
    tell();
    shown()[0].querySelector("a").focus();
  }
});
