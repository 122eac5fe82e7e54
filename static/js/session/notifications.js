// Desktop notifications of what happens in a tab that is not looked at. They never show what was said.
import { gettext } from "../support/i18n.js";

const ON = "mnesis-notifications"; // in localStorage

function isWanted() {
  try {
    return localStorage.getItem(ON) === "on";
  } catch {
    return false; // storage is forbidden
  }
}

const isOn = () => Notification.permission === "granted" && isWanted();

function want(wanted) {
  try {
    localStorage.setItem(ON, wanted ? "on" : "off");
  } catch {
    // storage is forbidden: there are no notifications
  }
}

// The button that turns them on and off in this browser. Without HTTPS, which they take outside this machine, it stays hidden.
export function watchNotifications(button, onError) {
  if (!("Notification" in window) || !isSecureContext) return;
  const show = () => (button.textContent = isOn() ? gettext("Stop notifying me") : gettext("Notify me of answers"));
  button.hidden = false;
  show();
  addEventListener("storage", show);
  button.addEventListener("click", async () => {
    const wanted = !isOn();
    want(wanted);
    if (wanted && (await Notification.requestPermission()) === "denied") {
      onError({ message: gettext("Your browser blocks notifications from this site. Allow them in its settings."), code: "BLOCKED" });
    }
    show();
  });
}

export function notify(words) {
  if (!document.hidden || !("Notification" in window) || !isOn()) return;
  const shown = new Notification(document.title, { body: words, tag: location.pathname });
  shown.addEventListener("click", () => {
    window.focus();
    shown.close();
  });
}
