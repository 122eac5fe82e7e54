// <time datetime="…"> in local time: data-relative shows how long ago, data-clock the time of day, and data-moment the
// date and time to the second, with the zone.
import { dateLanguage, gettext, language } from "./i18n.js";

const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
const clock = new Intl.DateTimeFormat(dateLanguage, { hour: "2-digit", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(dateLanguage, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const moment = new Intl.DateTimeFormat(dateLanguage, {
  ...{ day: "numeric", month: "short", year: "numeric" },
  ...{ hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
});
const full = new Intl.DateTimeFormat(dateLanguage, { dateStyle: "full", timeStyle: "long" });
const steps = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["week", 604_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

function howLongAgo(time, now = Date.now()) {
  const seconds = (time - now) / 1000;
  for (const [unit, size] of steps) {
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
  }
  return gettext("just now");
}

function onTheClock(time, now = new Date()) {
  const sameDay = time.toDateString() === now.toDateString();
  return (sameDay ? clock : dayAndClock).format(time);
}

function setText(element, text) {
  // Setting the same text again would still trigger layout, and screen readers might announce it.
  if (element.textContent !== text) element.textContent = text;
}

function inWords(time, { relative, clock }) {
  if (relative !== undefined) return howLongAgo(time);
  return clock !== undefined ? onTheClock(time) : moment.format(time);
}

export function showTimes(root) {
  for (const element of root.querySelectorAll("time[data-relative], time[data-clock], time[data-moment]")) {
    const time = new Date(element.dateTime);
    if (Number.isNaN(time.getTime())) continue;
    setText(element, inWords(time, element.dataset));
    element.title = full.format(time);
  }
}
