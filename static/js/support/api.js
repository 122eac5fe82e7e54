// The REST API (docs: /api/docs) for this site's own pages. Every error is an ApiError with a code from the error registry.
import { formatNumber, gettext } from "./i18n.js";

export class ApiError extends Error {
  constructor(code, message, status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export function csrfToken() {
  // Prefer the cookie: another tab may have signed in again since this page was rendered.
  const cookie = document.cookie.split("; ").find((item) => item.startsWith("csrftoken="));
  return cookie ? decodeURIComponent(cookie.slice("csrftoken=".length)) : document.querySelector('meta[name="csrf-token"]').content;
}

// Errors come in the page's language; programs, which do not name one, are answered in English.
export const jsonHeaders = () => ({ Accept: "application/json", "Mnesis-Language": document.documentElement.lang });

async function errorOf(response) {
  const body = await response.json().catch(() => null);
  if (body?.error) return new ApiError(body.error.code, body.error.message, response.status);
  return new ApiError(`HTTP_${response.status}`, gettext("The server sent a response that this page cannot read. Reload the page and try again."), response.status);
}

// A request on a connection that broke without a word, as when a laptop slept, would wait for minutes: seconds bounds that.
async function ask(path, { seconds = 0, ...options }) {
  const patience = new AbortController();
  const timer = seconds && setTimeout(() => patience.abort(), 1_000 * seconds);
  try {
    return await fetch(path, { credentials: "same-origin", signal: patience.signal, ...options });
  } catch {
    throw new ApiError("NOT_REACHED", gettext("The server did not answer."));
  } finally {
    clearTimeout(timer);
  }
}

export async function call(method, path, body, { seconds } = {}) {
  const response = await ask(path, {
    method,
    seconds,
    headers: { "Content-Type": "application/json", "X-CSRFToken": csrfToken(), ...jsonHeaders() },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

// Returns the fork's id. A worker copies long sessions; onProgress(words) is told of that.
export async function makeFork(session, place, onProgress) {
  let made = await call("POST", `${session}/fork`, place);
  while (made.copied < made.messages) {
    const [copied, messages] = [made.copied, made.messages].map((count) => formatNumber(count));
    onProgress(gettext("Forking… %(copied)s of %(messages)s messages.", { copied, messages }));
    await new Promise((resolve) => setTimeout(resolve, 500));
    made = await call("GET", `/api/sessions/${encodeURIComponent(made.id)}/fork`);
  }
  return made.id;
}

export async function fetchJson(path) {
  const response = await ask(path, { headers: jsonHeaders() });
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

// Fetches part of a page as a DocumentFragment.
export async function fetchPart(path, headers = {}) {
  const response = await ask(path, { headers: { "HX-Request": "true", ...headers } });
  if (!response.ok) throw new ApiError(`HTTP_${response.status}`, gettext("A part of the page could not be loaded."), response.status);
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  return template.content;
}
