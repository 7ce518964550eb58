// Keys: "/" goes to the search box, arrows move between results, and Escape closes, goes back to the box, or empties it.

const words = document.getElementById("q");
const stops = () => [...document.querySelectorAll("a.suggestion, #results .card > a")];

/** Return where an arrow leads from a suggestion or a result, which is nowhere at the ends. */
function beside(stop, key) {
  const all = stops();
  const at = all.indexOf(stop);
  if (key === "ArrowLeft" || key === "ArrowRight") return all[at + (key === "ArrowRight" ? 1 : -1)];
  const grid = stop.closest(".grid");
  if (!grid) return key === "ArrowUp" ? words : document.querySelector("#results .card > a");
  const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const card = all[at + (key === "ArrowUp" ? -columns : columns)];
  return card?.closest(".grid") || key === "ArrowDown" ? card : words;
}

/** Return what Escape closes or empties first, as what is pressed for it. What is open inside the form comes before. */
function toClose() {
  const open = document.querySelector(".chip.sending button") ?? document.querySelector("#unpick:not([hidden])");
  return open ?? (document.activeElement === words && words.value ? document.getElementById("no-words") : null);
}

function press(event) {
  const { key, target } = event;
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.shiftKey && key !== "/") return; // "/" is above a digit on many keyboards
  const results = target.closest("#results, #past");
  let action = null;
  if (key === "/") {
    if (target.closest("select, textarea, input:not([type=checkbox], [type=radio])") || words.disabled) return;
    action = () => words.select();
    words.focus();
  } else if (key === "Escape") {
    const close = toClose();
    action = close ? () => close.click() : results && (() => words.focus());
  } else if (key.startsWith("Arrow")) {
    const stop = target.closest(".card")?.querySelector("a") ?? target.closest("a.suggestion");
    const next = target === words ? key === "ArrowDown" && stops()[0] : stop && beside(stop, key);
    action = next && (() => next.focus());
  }
  if (!action) return;
  event.preventDefault();
  action();
}

/** Make the keys work. What is open has to listen before, so that Escape closes it first. */
export function startKeys() {
  document.addEventListener("keydown", press);
}
