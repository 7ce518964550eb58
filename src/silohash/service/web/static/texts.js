// The texts that scripts show, in the language of the page.

const texts = JSON.parse(document.getElementById("search").dataset.texts);
const { lang } = document.documentElement;

/** Return a number with the separators of the language. */
export const written = (number, options = {}) => number.toLocaleString(lang, options);

/** Return a text with values for its fields, of which `count` chooses the plural. */
export function t(name, values = {}) {
  const form = texts[name];
  const text = typeof form === "string" ? form : ((values.count === 1 && form.one) || form.other);
  return text.replace(/\{(\w+)\}/g, (_, key) => (typeof values[key] === "number" ? written(values[key]) : values[key]));
}
