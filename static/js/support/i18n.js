// Texts in the page's language, and numbers and dates as it writes them. For a language other than English, a script in the
// head has the translations (mnesis_site/languages.py). "makemessages" finds what is given to gettext and ngettext as a
// literal.
const { django } = globalThis; // the admin's has other things

export const language = document.documentElement.lang || "en";
const DATES = { en: "en-GB" };
export const dateLanguage = DATES[language] ?? language;

const PLACE = /%\((\w+)\)s/;
const fill = (text, values) => text.replace(new RegExp(PLACE, "g"), (place, name) => values[name] ?? place);

// gettext("Delete %(title)s?", { title })
export function gettext(text, values = {}) {
  return fill(django?.gettext?.(text) ?? text, values);
}

// ngettext("%(count)s message", "%(count)s messages", count): the count is written as the language does.
export function ngettext(one, many, count, values = {}) {
  const text = django?.ngettext?.(one, many, count) ?? (count === 1 ? one : many);
  return fill(text, { count: formatNumber(count), ...values });
}

// Puts elements into the places of a text, for append(): withElements(gettext("%(title)s was deleted."), { title: element })
export function withElements(text, elements) {
  return text.split(PLACE).map((piece, at) => (at % 2 ? elements[piece] : piece));
}

export function formatNumber(number, options = {}) {
  return number.toLocaleString(language, options);
}

export function formatPercent(percent) {
  return `${formatNumber(percent)} %`;
}
