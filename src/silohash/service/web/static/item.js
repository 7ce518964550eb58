// The arrow keys lead to the previous and the next item of the results, unless they are needed to scroll or to write.

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("input, textarea, select")) return;
  const step = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  if (step) document.querySelector(`.steps a[rel=${step}]`)?.click();
});
