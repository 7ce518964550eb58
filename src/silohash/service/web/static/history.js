// The last searches for words, kept in this browser only, and offered while nothing is searched for.

const MOST = 10;
const person = document.querySelector(".person > span")?.lastChild.textContent ?? "";
const NAME = `silohash searches ${person}`;

/** Return the kept searches, the last one first. There are none where the browser does not let the page keep anything. */
function kept() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? [];
  } catch {
    return [];
  }
}

function keep(searches) {
  try {
    if (searches.length) localStorage.setItem(NAME, JSON.stringify(searches.slice(0, MOST)));
    else localStorage.removeItem(NAME);
  } catch {
    // The browser does not let the page keep anything.
  }
}

/** Keep the words of a search that somebody has finished, which is when they send them or open a result. */
export function remember(text) {
  if (text) keep([text, ...kept().filter((each) => each !== text)]);
}

/** Show the kept searches if nothing is searched for. */
export function offerHistory() {
  const place = document.getElementById("past");
  const searches = document.querySelector("#results .summary, #results [role=alert], [name=picture]") ? [] : kept();
  place.hidden = !searches.length;
  const links = searches.map((text) => {
    const link = Object.assign(document.createElement("a"), { className: "suggestion", textContent: text, dir: "auto" });
    link.href = `/?${new URLSearchParams({ q: text })}`;
    return link;
  });
  place.querySelector("span.list").replaceChildren(...links.flatMap((link) => [link, " "]));
}

document.querySelector("#past button").addEventListener("click", () => {
  keep([]);
  offerHistory();
  document.getElementById("q").focus();
});
