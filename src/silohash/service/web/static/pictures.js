// A picture to search with: chosen in the file dialog, pasted, or dropped anywhere on the page.

/**
 * Make the ways to send a picture work.
 *
 * @param {(file: File) => void} search called with each picture
 */
export function startPictures(search) {
  const field = document.getElementById("file");
  field.addEventListener("change", () => {
    const [file] = field.files;
    if (file) search(file);
    field.value = "";
  });
  document.getElementById("file-open").addEventListener("click", () => field.click());
  field.tabIndex = -1;
  document.querySelector("#upload button").tabIndex = -1;

  // A picture that is pasted or dropped anywhere.
  addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
    if (!file) return;
    event.preventDefault();
    search(file);
  });

  const veil = document.getElementById("drop");
  let depth = 0;
  const carriesFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (!carriesFile(event)) return;
    depth += 1;
    veil.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (carriesFile(event)) veil.hidden = (depth = Math.max(0, depth - 1)) === 0;
  });
  addEventListener("dragover", (event) => {
    if (carriesFile(event)) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    depth = 0;
    veil.hidden = true;
    const [file] = event.dataTransfer.files;
    if (file) search(file);
  });
}
