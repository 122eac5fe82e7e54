// The variables of a saved prompt: {{name}}, or {{name=default}}. What is not written like that stays as it is.
const VARIABLE = /\{\{\s*([^{}=\s](?:[^{}=]{0,58}[^{}=\s])?)\s*(?:=([^{}]*))?\}\}/g;

const MOST = 20; // that a form asks for; more stay as they are written

// Returns a Map from each name to its default, in the order of the text. The first default of a name counts.
export function variablesOf(text) {
  const found = new Map();
  for (const [, name, value = ""] of text.matchAll(VARIABLE)) {
    if (found.has(name) || found.size < MOST) found.set(name, found.get(name) || value.trim());
  }
  return found;
}

// values: a Map. A value is not read for variables again.
export function fill(text, values) {
  return text.replace(VARIABLE, (written, name) => values.get(name) ?? written);
}
