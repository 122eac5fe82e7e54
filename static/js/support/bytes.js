// Formats file sizes and sends bytes with progress.
import { ApiError, csrfToken, jsonHeaders } from "./api.js";
import { formatNumber, gettext } from "./i18n.js";

const UNITS = [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]];

export function formatSize(bytes) {
  const [unit, size] = UNITS.find(([, least]) => bytes >= least) ?? ["B", 1];
  const number = bytes / size;
  const rounded = size > 1 && number < 100 ? Number(number.toFixed(1)) : Math.round(number);
  return `${formatNumber(rounded, { useGrouping: false })} ${unit}`;
}

export function sentText(loaded, total) {
  const sizes = { sent: formatSize(loaded), total: formatSize(total) };
  return loaded < total ? gettext("Sending: %(sent)s of %(total)s", sizes) : gettext("Sent. The server is reading it…");
}

function errorOf({ status, responseText }) {
  let told = null;
  try {
    told = JSON.parse(responseText).error;
  } catch {
    // not a JSON answer, for example from a proxy
  }
  return new ApiError(told?.code ?? `HTTP_${status}`, told?.message ?? gettext("The server did not accept this."), status);
}

// The caller passes the XMLHttpRequest, so that it can abort it. fetch() cannot report upload progress.
export function sendBytes(request, method, path, { headers = {}, body = null, onSent = () => {} }) {
  return new Promise((resolve, reject) => {
    request.open(method, path);
    for (const [name, value] of Object.entries({ "X-CSRFToken": csrfToken(), ...jsonHeaders(), ...headers })) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded, total }) => onSent(loaded, total));
    request.addEventListener("load", () => (request.status < 400 ? resolve(request) : reject(errorOf(request))));
    request.addEventListener("error", () => reject(new ApiError("NOT_REACHED", gettext("The server did not answer."))));
    request.addEventListener("abort", () => reject(new ApiError("GIVEN_UP", gettext("This upload was cancelled."))));
    request.send(body);
  });
}
