// Results without a new page: while words are typed, filters change, or a picture is chosen, dropped or pasted.
// Everything here also works as plain forms and links; this only makes it faster.

import { startDrawing } from "./draw.js";
import { startPictures } from "./pictures.js";

const form = document.getElementById("search");
const words = document.getElementById("q");
const within = form.elements.within;
const WAIT_MS = 220;
let running = null;
let timer = 0;

document.documentElement.classList.add("with-script");

/** Return the address that the form asks for, without empty fields. */
function wanted() {
  const address = new URL("/", location.href);
  for (const [name, value] of new FormData(form)) {
    const unused = !value || (name === "find" && value === "item") || (name === "within" && value === within.max);
    if (!unused) address.searchParams.append(name, value.trim());
  }
  if (address.searchParams.has("q")) address.searchParams.delete("picture");
  return address;
}

/** Put the changing parts of a received page into this one. */
function show(page) {
  for (const id of ["intro", "chosen", "results", "clear", "silo-count"]) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    if (old && fresh) old.replaceWith(fresh);
  }
  document.title = page.title;
  words.placeholder = page.getElementById("q")?.placeholder ?? words.placeholder;
  const headline = document.getElementById("headline");
  document.getElementById("announce").textContent = headline?.textContent ?? "";
}

/**
 * Fetch a page and show its results.
 *
 * @param {URL|string} address what to fetch
 * @param {object} how method and body of the request, and what to do with the history: "push", "replace" or "none"
 * @returns {Promise<boolean>} whether the results are shown
 */
async function go(address, { body, history: keep = "push" } = {}) {
  clearTimeout(timer);
  running?.abort();
  const mine = (running = new AbortController());
  const slow = setTimeout(() => document.getElementById("results").classList.add("waiting"), 120);
  try {
    const answer = await fetch(address, { method: body ? "POST" : "GET", body, signal: mine.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (page.getElementById("results")) {
      show(page);
      const next = answer.redirected ? answer.url : String(address);
      if (keep === "push" && next !== location.href) history.pushState(null, "", next);
      if (keep === "replace") history.replaceState(null, "", next);
    } else {
      complain(page.querySelector(".notice p")?.textContent ?? "The service did not answer as expected.");
    }
    return true;
  } catch (error) {
    if (error.name === "AbortError") return false;
    complain("The service cannot be reached. Check that it is running, then search again.");
    return false;
  } finally {
    clearTimeout(slow);
    if (running === mine) document.getElementById("results").classList.remove("waiting");
  }
}

/** Show why there are no results. */
function complain(text) {
  const results = document.getElementById("results");
  const notice = document.createElement("div");
  notice.className = "notice";
  notice.setAttribute("role", "alert");
  const heading = Object.assign(document.createElement("h2"), { id: "headline", textContent: "This search has no answer" });
  const reason = Object.assign(document.createElement("p"), { textContent: text });
  notice.append(heading, reason);
  results.replaceChildren(notice);
}

/** Search with a picture file or a drawing. The filters of the form are kept. */
function sendPicture(file, { drawing = false, keep = "push" } = {}) {
  const body = new FormData();
  for (const [name, value] of wanted().searchParams) if (!["q", "picture"].includes(name)) body.append(name, value);
  if (drawing) body.append("drawing", "1");
  body.append("picture_file", file, file.name || "picture.png");
  words.value = "";
  return go("/picture", { body, history: keep });
}

function describeWithin() {
  const open = within.value === within.max;
  document.getElementById("within-text").textContent = open ? "any distance" : `${within.value} bits`;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  go(wanted());
  words.blur();
  if (matchMedia("(pointer: fine)").matches) words.focus();
});

words.addEventListener("input", () => {
  clearTimeout(timer);
  const text = words.value.trim();
  if (text.length === 1 || (!text && document.querySelector("[name=picture]"))) return;
  timer = setTimeout(() => go(wanted(), { history: "replace" }), WAIT_MS);
});

form.addEventListener("input", (event) => {
  if (event.target === within) describeWithin();
});

form.addEventListener("change", (event) => {
  if (event.target !== words) go(wanted(), { history: "replace" });
});

// Links to further pages, suggestions and cleared filters change the results in place.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.suggestion, .paging a, #clear, .chip .drop");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  follow(link);
});

async function follow(link) {
  const address = new URL(link.href);
  const paging = link.closest(".paging");
  if (await go(address)) {
    fill(address.searchParams);
    if (paging) document.getElementById("results").focus({ preventScroll: true });
    if (paging) document.getElementById("results").scrollIntoView();
    else words.focus();
  }
}

/** Set the fields of the form to the parameters of an address. */
function fill(parameters) {
  words.value = parameters.get("q") ?? "";
  within.value = parameters.get("within") ?? within.max;
  describeWithin();
  for (const radio of form.querySelectorAll("[name=find]")) radio.checked = radio.value === (parameters.get("find") ?? "item");
  for (const box of form.querySelectorAll("[name=silo]")) box.checked = parameters.getAll("silo").includes(box.value);
  if (form.elements.label) form.elements.label.value = parameters.get("label") ?? "";
}

addEventListener("popstate", () => {
  fill(new URL(location.href).searchParams);
  go(location.href, { history: "none" });
});

// The menu of silos closes when something else is pressed.
const menu = form.querySelector("details.menu");
document.addEventListener("pointerdown", (event) => {
  if (menu?.open && !menu.contains(event.target)) menu.open = false;
});
menu?.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

// A model of given features takes neither pictures nor drawings.
if (document.getElementById("upload")) {
  startPictures(sendPicture);
  startDrawing((file) => sendPicture(file, { drawing: true, keep: "replace" }));
}
