// Results without a new page: while words are typed, filters change, or a picture is chosen, dropped or pasted.
// Everything here also works as plain forms and links; this only makes it faster.

import { startDrawing } from "./draw.js";
import { offerHistory, remember } from "./history.js";
import { startKeys } from "./keys.js";
import { pagesOf, received, showLate, tell } from "./late.js";
import { startPictures } from "./pictures.js";
import { offerSelection } from "./select.js";
import { t } from "./texts.js";
import { prepared, send, showSending } from "./upload.js";

const form = document.getElementById("search");
const words = document.getElementById("q");
const WAIT_MS = 220;
const FADE_MS = 120;
const SAY_MS = 700;
let running = null; // what ends the search that runs
let upload = null; // the same, while a picture is on its way
let timer = 0;
let waits = []; // timers of a search that runs

// What the present entry of the history follows: "words" that are being typed, or a "drawing". Empty if it is finished.
let draft = "";

offerSelection();
offerHistory();

/** Return the address that the form asks for, without empty fields. */
function wanted() {
  const address = new URL("/", location.href);
  for (const [name, value] of new FormData(form)) {
    if (value && !(name === "find" && value === "item") && name !== "picture_file") address.searchParams.append(name, value.trim());
  }
  if (address.searchParams.has("q")) for (const name of ["like", "of", "by", "browse"]) address.searchParams.delete(name);
  if (!address.searchParams.has("value")) ["column", "operator"].forEach((name) => address.searchParams.delete(name));
  return address;
}

/** Search for what the form asks for. While a picture is on its way, what is typed or chosen follows when it has arrived. */
function search(keep) {
  if (!upload) return go(wanted(), { history: keep });
}

/** Put the changing parts of a received page into this one. */
function show(page) {
  for (const id of ["intro", "chosen", "no-words", "results", "clear", "silo-count", "label-count", "more-count", "conditions", "languages"]) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    if (old && fresh) old.replaceWith(fresh);
  }
  offerSelection();
  offerHistory();
  document.title = page.title;
  words.placeholder = page.getElementById("q")?.placeholder ?? words.placeholder;
  const headline = document.getElementById("headline");
  document.getElementById("announce").textContent = headline?.textContent ?? "";
}

/**
 * Put an address into the history.
 *
 * @param {string} address the address of the results
 * @param {string} keep "push" for a new entry; "replace" for the present one; "words" or "drawing" for one entry that follows
 *   what is typed or drawn until it is finished; "none" to leave the history alone
 */
function record(address, keep) {
  if (keep === "none") return;
  if (keep === "push") draft = "";
  if (keep === "replace" || keep === draft) {
    history.replaceState(null, "", address);
  } else if (address !== location.href) {
    history.pushState(null, "", address);
    draft = keep === "push" ? "" : keep;
  }
}

/** Mark the results as outdated while a search runs: to screen readers at once, then by their look, then in words. */
function startWaiting(text) {
  document.getElementById("results").setAttribute("aria-busy", "true");
  if (waits.length) return; // the search that this one replaces was already waited for
  waits = [
    setTimeout(() => document.getElementById("results").classList.add("waiting"), FADE_MS),
    setTimeout(() => (document.getElementById("searching").textContent = text), SAY_MS),
  ];
}

function stopWaiting() {
  waits.forEach(clearTimeout);
  waits = [];
  const results = document.getElementById("results");
  results.classList.remove("waiting");
  results.removeAttribute("aria-busy");
  document.getElementById("searching").textContent = "";
}

/** Go to the form for signing in, which leads back to the address that was fetched or, after a picture, to this page. */
function signIn(address, sent) {
  const target = new URL(address);
  if (sent) target.searchParams.set("next", location.pathname + location.search);
  location.assign(target);
}

/**
 * Fetch a page and show its results.
 *
 * @param {URL|string} address what to fetch
 * @param {object} how the entry of the history, as in `record`; for a picture what to send, whether the present results
 *   remain if it is refused, what ends it, and what is called with the share that is sent
 * @returns {Promise<boolean>} whether the results are shown
 */
async function go(address, { history: keep = "push", body, remain = false, end, progress } = {}) {
  clearTimeout(timer);
  running?.abort();
  if (!end) upload?.abort();
  const mine = (running = end ?? new AbortController());
  startWaiting(t(progress ? "sending" : "searching"));
  try {
    const { signal } = mine;
    const headers = { accept: "text/event-stream, text/html", "accept-language": document.documentElement.lang };
    const answer = await (body ? send(address, body, { signal, progress, headers }) : fetch(address, { signal, headers }).then(received));
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") {
      signIn(answer.url, Boolean(body));
      return false;
    }
    const pages = pagesOf(answer);
    const { value: page } = await pages.next();
    if (page.getElementById("results")) {
      show(page);
      record(answer.redirected ? answer.url : String(address), keep);
      showFurther(pages);
      return true;
    }
    complain(page.querySelector(".notice p")?.textContent ?? t("unexpected"), remain);
  } catch (error) {
    if (error.name !== "AbortError") {
      complain(t("unreachable"), remain);
    }
  } finally {
    if (running === mine) stopWaiting();
  }
  return false;
}

/** Show the pages of late silos when they come. A further search ends this. */
async function showFurther(pages) {
  try {
    for await (const page of pages) {
      showLate(page, (each) => {
        const isPressed = document.activeElement?.closest("#late");
        show(each);
        if (isPressed) showFrom("results");
      });
    }
  } catch (error) {
    if (error.name !== "AbortError") tell(t("late_lost"));
  }
}

/** Show why there are no results, in place of the present ones or above them. */
function complain(text, remain) {
  const results = document.getElementById("results");
  const notice = document.createElement("div");
  notice.className = "notice complaint";
  notice.setAttribute("role", "alert");
  const heading = Object.assign(document.createElement("h2"), { textContent: t("no_answer") });
  const reason = Object.assign(document.createElement("p"), { textContent: text });
  notice.append(heading, reason);
  if (remain) {
    results.querySelector(".complaint")?.remove();
    results.prepend(notice);
    notice.scrollIntoView({ block: "nearest" });
  } else {
    heading.id = "headline";
    results.replaceChildren(notice);
  }
}

/** Search with a picture file or a drawing. The words and the filters of the form are kept. */
async function sendPicture(file, { drawing = false } = {}) {
  upload?.abort();
  const end = (upload = new AbortController());
  const asked = besidePicture();
  const cancel = () => {
    end.abort();
    words.focus();
  };
  const shown = drawing ? null : showSending(file, cancel);
  try {
    const body = new FormData();
    for (const [name, value] of asked.searchParams) body.append(name, value);
    if (drawing) body.append("drawing", "1");
    const sent = drawing ? file : await prepared(file, Number(document.getElementById("file").dataset.most));
    body.append("picture_file", sent, file.name || "picture.png");
    const how = { body, remain: true, history: drawing ? "drawing" : "push", end, progress: shown?.progress };
    if (!end.signal.aborted) await go("/picture", how);
  } catch (error) {
    complain(error.message, true);
  }
  shown?.end();
  if (upload !== end) return; // another picture was chosen in the meantime
  upload = null;
  if (besidePicture().href !== asked.href) search("replace");
}

/** Return the address that the form asks for without its picture. */
function besidePicture() {
  const address = wanted();
  for (const name of ["picture", "like", "of", "by", "browse"]) address.searchParams.delete(name);
  return address;
}

/** Tell when the words are as long as they may be, because the browser cuts longer ones. */
function describeLength() {
  const limit = Number(words.dataset.most);
  const text = t("too_long", { count: limit });
  document.getElementById("limit").textContent = words.value.length < limit ? "" : text;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  remember(words.value.trim());
  words.blur();
  if (matchMedia("(pointer: fine)").matches) words.focus();
  if (String(wanted()) === location.href) draft = ""; // typing has already put it into the history
  if (await search("words")) draft = "";
});

words.maxLength = Number(words.dataset.most);
describeLength();
words.addEventListener("input", () => {
  describeLength();
  clearTimeout(timer);
  const text = words.value.trim();
  if (text.length === 1) return;
  timer = setTimeout(() => search("words"), WAIT_MS);
});

form.addEventListener("change", (event) => {
  if (event.target === words || ["picture_file", "column", "operator"].includes(event.target.name)) return;
  if (event.target.name === "any" && !wanted().searchParams.has("label")) return;
  const typed = words.value.trim() !== (new URL(location.href).searchParams.get("q") ?? "");
  search(typed ? "words" : "push");
});

// Links to further pages, suggestions and filters change the results in place.
document.addEventListener("click", (event) => {
  if (event.target.closest("#results .card > a")) remember(words.value.trim());
  const link = event.target.closest("a.suggestion, .paging a, .facets a, #results .about a, .tags a, #clear, .box .drop, #results .notice a");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  follow(link);
});

async function follow(link) {
  const address = new URL(link.href);
  const paging = link.closest(".paging");
  if (link.matches(".suggestion")) remember(address.searchParams.get("q"));
  if (await go(address)) {
    fill(address.searchParams);
    const same = [...document.querySelectorAll(".facets a")].find((each) => each.dataset.filter === link.dataset.filter);
    if (same) same.focus({ preventScroll: true });
    else if (paging || link.closest(".card")) showFrom("results");
    else words.focus();
  }
}

/** Move the focus and the view to the beginning of a part of the page. */
function showFrom(id) {
  document.getElementById(id).focus({ preventScroll: true });
  document.getElementById(id).scrollIntoView();
}

/** Set the fields of the form to the parameters of an address. */
function fill(parameters) {
  words.value = parameters.get("q") ?? "";
  describeLength();
  for (const radio of form.querySelectorAll("[name=find]")) radio.checked = radio.value === (parameters.get("find") ?? "item");
  for (const box of form.querySelectorAll("[name=silo], [name=label], [name=any]"))
    box.checked = parameters.getAll(box.name).includes(box.value);
}

addEventListener("popstate", () => {
  draft = "";
  fill(new URL(location.href).searchParams);
  go(location.href, { history: "none" });
});

// A search whose results were left for another page is finished.
addEventListener("pagehide", () => (draft = ""));

// A menu closes when something else is pressed.
document.addEventListener("pointerdown", (event) => {
  for (const menu of form.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
form.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest(".menu[open]");
  if (!menu) return;
  event.preventDefault();
  menu.open = false;
  menu.querySelector("summary").focus();
});

// A model of given features takes neither pictures nor drawings.
if (document.getElementById("upload")) {
  startPictures(sendPicture);
  startDrawing((file) => sendPicture(file, { drawing: true }));
}

// Only now, so that what is open is closed before anything is emptied.
startKeys();
