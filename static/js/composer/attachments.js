// Files attached to the message being written: chosen, dropped or pasted. Each is a chip that shows its progress.
import { call } from "../support/api.js";
import { formatSize } from "../support/bytes.js";
import { formatPercent, gettext } from "../support/i18n.js";
import { Upload } from "./upload.js";

const MOST = 50; // the API's limit for one message
const LOOK_AGAIN = [700, 1_000, 2_000, 4_000, 8_000]; // milliseconds between polls, in case no event arrives

// Characters that hide or reorder the letters of a name are made visible, as in sessions_app/pages/markdown.py.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = (name) => name.replace(HIDDEN, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

const pathOf = (id) => `/api/files/${encodeURIComponent(id)}`;

// One file and its chip.
class Attachment {
  id = "";
  state = "sending"; // then "looking", then "ready"; or "failed"
  kind = "";

  constructor(list, { name, size }) {
    Object.assign(this, { list, name: visible(name), size });
    this.chip = document.getElementById("attachment").content.firstElementChild.cloneNode(true);
    this.part("name").textContent = this.name;
    this.part("size").textContent = formatSize(size);
    this.part("remove").setAttribute("aria-label", gettext("Remove %(name)s", { name: this.name }));
    this.part("remove").addEventListener("click", () => list.remove(this));
    this.part("again").addEventListener("click", () => list.send(this));
    this.part("progress").setAttribute("aria-label", gettext("Upload of %(name)s", { name: this.name }));
  }

  part(name) {
    return this.chip.querySelector(`[data-attachment-${name}]`);
  }

  show(state, words) {
    this.state = state;
    this.chip.dataset.state = state;
    this.part("state").textContent = words;
    this.part("progress").hidden = state !== "sending";
    this.part("again").hidden = !(state === "failed" && this.file);
    this.list.onChange();
  }

  showProgress(bytes) {
    const share = this.size ? Math.min(1, bytes / this.size) : 1;
    this.part("progress").value = share;
    this.show("sending", formatPercent(Math.floor(share * 100)));
  }

  showFile(file) {
    this.kind = file.file_type;
    const link = this.part("name");
    link.href = `/files/${encodeURIComponent(this.id)}/`;
    if (file.state === "explored") this.show("ready", gettext("ready · %(kind)s", { kind: this.kind }));
    else this.show("looking", gettext("looking…"));
  }
}

export class Attachments {
  #items = [];

  // onChange() is called whenever the files or their states change.
  constructor(root, { sessionId, status, onChange }) {
    Object.assign(this, { root, sessionId, status, onChange });
  }

  get isSending() {
    return this.#items.some(({ state }) => state === "sending");
  }

  get hasFailed() {
    return this.#items.some(({ state }) => state === "failed");
  }

  // The uploaded files, for the turn and for the draft.
  get files() {
    return this.#items.filter(({ id }) => id).map(({ id, name, size }) => ({ id, name, size }));
  }

  add(files) {
    for (const file of files) {
      if (this.#items.length >= MOST) {
        this.#say(gettext("A message can have at most %(most)s files. %(name)s was left out.", { most: MOST, name: file.name }));
        return;
      }
      this.#put(new Attachment(this, file)).file = file;
      this.send(this.#items.at(-1));
    }
  }

  // Files of a saved draft: they are already on the server.
  async restore(files) {
    for (const { id, name, size } of files) {
      const item = this.#put(new Attachment(this, { name, size }));
      item.id = id;
      item.show("looking", gettext("looking…"));
      this.#look(item);
    }
  }

  async send(item) {
    item.showProgress(0);
    item.upload = new Upload(item.file, {
      sessionId: this.sessionId,
      onProgress: (bytes) => item.showProgress(bytes),
      onWaiting: () => item.show("sending", gettext("no connection; resumes automatically")),
    });
    try {
      item.id = await item.upload.run();
    } catch (error) {
      if (error.code === "GIVEN_UP") return;
      item.show("failed", error.message);
      item.chip.scrollIntoView({ block: "nearest" });
      this.#say(gettext("%(name)s could not be attached. %(reason)s", { name: item.name, reason: error.message }));
      return;
    }
    item.upload = null;
    if (this.#items.some((other) => other !== item && other.id === item.id)) {
      this.#drop(item);
      this.#say(gettext("%(name)s is already attached.", { name: item.name }));
      return;
    }
    item.show("looking", gettext("looking…"));
    this.#look(item);
  }

  // Called when an event reports that a file was explored.
  explored(fileId) {
    const item = this.#items.find(({ id }) => id === fileId);
    if (item) this.#ask(item).catch(() => {});
  }

  remove(item) {
    item.upload?.cancel();
    const next = item.chip.nextElementSibling ?? item.chip.previousElementSibling;
    this.#drop(item);
    this.#say(gettext("%(name)s was removed.", { name: item.name }));
    (next?.querySelector("[data-attachment-remove]") ?? document.getElementById("attach")).focus();
  }

  clear() {
    for (const item of [...this.#items]) this.#drop(item);
  }

  #put(item) {
    this.#items.push(item);
    this.root.append(item.chip);
    this.root.hidden = false;
    item.chip.scrollIntoView({ block: "nearest" });
    return item;
  }

  #drop(item) {
    this.#items = this.#items.filter((other) => other !== item);
    item.chip.remove();
    this.root.hidden = !this.#items.length;
    this.onChange();
  }

  async #look(item) {
    for (const pause of LOOK_AGAIN) {
      try {
        if ((await this.#ask(item)) || !this.#items.includes(item)) return;
      } catch (error) {
        if (error.status === 404) {
          item.id = "";
          item.show("failed", gettext("This file no longer exists. Remove it and choose it again."));
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    // Not inspected yet, but sendable: the turn waits for the inspection.
    if (item.state === "looking") item.show("ready", item.kind ? gettext("ready · %(kind)s", { kind: item.kind }) : gettext("ready · file"));
  }

  async #ask(item) {
    const before = item.state;
    item.showFile(await call("GET", pathOf(item.id)));
    if (item.state === "ready" && before !== "ready") this.#say(gettext("%(name)s is ready.", { name: item.name }));
    return item.state === "ready";
  }

  #say(words) {
    this.status.textContent = words;
  }
}

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

// Files may be dropped anywhere on the page.
export function watchDropping(zone, take) {
  let depth = 0; // dragenter and dragleave fire for every element on the way
  const end = () => {
    depth = 0;
    zone.hidden = true;
  };
  addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    depth += 1;
    zone.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (hasFiles(event) && --depth <= 0) end();
  });
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    end();
    take([...event.dataTransfer.files]);
  });
}

// Pastes a picture or file from the clipboard. Text is pasted as text, even if a program adds a picture of it.
export function watchPasting(textarea, take) {
  textarea.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (!files.length || event.clipboardData.types.includes("text/plain")) return;
    event.preventDefault();
    take(files);
  });
}
