// <time datetime="…" data-relative> says how long ago; <time datetime="…" data-clock> says the local time.
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });
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
  return "just now";
}

function onTheClock(time, now = new Date()) {
  const sameDay = time.toDateString() === now.toDateString();
  return sameDay ? clock.format(time) : `${day.format(time)}, ${clock.format(time)}`;
}

function setText(element, text) {
  // Writing the same text again would still make a screen reader and the layout look at it.
  if (element.textContent !== text) element.textContent = text;
}

export function showTimes(root) {
  for (const element of root.querySelectorAll("time[data-relative], time[data-clock]")) {
    const time = new Date(element.dateTime);
    if (Number.isNaN(time.getTime())) continue;
    setText(element, "relative" in element.dataset ? howLongAgo(time) : onTheClock(time));
    element.title = full.format(time);
  }
}
