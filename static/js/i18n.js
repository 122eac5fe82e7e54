// Texts in the page's language, and numbers as it writes them. For a language other than English, a script in the head has
// the translations (mnesis_site/languages.py). "makemessages" finds what is given to gettext and ngettext as a literal.
const { django } = globalThis;

export const language = document.documentElement.lang;

const fill = (text, values) => text.replace(/%\((\w+)\)s/g, (place, name) => values[name] ?? place);

// gettext("Delete %(title)s?", { title })
export function gettext(text, values = {}) {
  return fill(django?.gettext(text) ?? text, values);
}

// ngettext("%(count)s message", "%(count)s messages", count): the count is written as the language does.
export function ngettext(one, many, count, values = {}) {
  const text = django?.ngettext(one, many, count) ?? (count === 1 ? one : many);
  return fill(text, { count: formatNumber(count), ...values });
}

export function formatNumber(number, options = {}) {
  return number.toLocaleString(language, options);
}
