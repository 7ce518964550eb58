// Photographs fill their cards. Very wide and very tall ones are shown whole, because a square would show too little of them.

const WIDEST = 2;

function fit(image) {
  const ratio = image.naturalWidth / image.naturalHeight;
  image.classList.toggle("whole", ratio > WIDEST || ratio < 1 / WIDEST);
}

const isCard = (element) => element instanceof HTMLImageElement && element.closest(".card .shot:not(.small)");

document.addEventListener("load", (event) => isCard(event.target) && fit(event.target), true);
for (const image of document.images) if (isCard(image) && image.complete && image.naturalHeight) fit(image);
