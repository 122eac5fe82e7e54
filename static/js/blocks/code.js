// What the buttons of a block of code do (support/enhance.js makes them): wrap its lines, save it as a file, show what it draws.
// Loaded when one of them is first pressed.

// Extensions of languages that are not their own.
const EXTENSIONS = {
  __proto__: null,
  ...{ bash: "sh", shell: "sh", zsh: "sh", console: "txt", "shell-session": "txt", text: "txt", plain: "txt", plaintext: "txt" },
  ...{ "c++": "cpp", cc: "cpp", csharp: "cs", "c#": "cs", golang: "go", haskell: "hs", julia: "jl", kotlin: "kt", ocaml: "ml" },
  ...{ javascript: "js", node: "js", typescript: "ts", jsonl: "jsonl", python: "py", python3: "py", ruby: "rb", rust: "rs" },
  ...{ perl: "pl", powershell: "ps1", elixir: "ex", erlang: "erl", clojure: "clj", fsharp: "fs", "f#": "fs", "objective-c": "m" },
  ...{ markdown: "md", yaml: "yml", latex: "tex", postgresql: "sql", sqlite: "sql", patch: "diff", mermaid: "mmd", graphviz: "dot" },
};
const NAMES = { __proto__: null, dockerfile: "Dockerfile", docker: "Dockerfile", make: "Makefile", makefile: "Makefile" };
// The quotes are \x22 and \x27 here, since "makemessages" would take them for the beginning of a string.
const FILE_NAME = /(?:^|[\s/\\=\x22\x27])([\w-][\w.-]{0,80}\.[A-Za-z0-9]{1,10})(?=$|[\s\x22\x27])/;

// The name in the block's first line (```py app/main.py), or one by its language.
export function nameOf(figure) {
  const { language = "" } = figure.dataset;
  const caption = figure.querySelector("figcaption")?.textContent ?? "";
  const written = FILE_NAME.exec(caption)?.[1];
  if (written) return written;
  if (NAMES[language]) return NAMES[language];
  const message = figure.closest(".message")?.dataset.seq;
  const extension = EXTENSIONS[language] ?? (/^[a-z0-9]{1,10}$/.test(language) ? language : "txt");
  return `${message ? `message-${message}` : "code"}.${extension}`;
}

function save(figure) {
  const address = URL.createObjectURL(new Blob([figure.querySelector("code").textContent], { type: "application/octet-stream" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: nameOf(figure) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const acts = {
  wrap(figure, button) {
    const wraps = figure.toggleAttribute("data-wraps");
    button.setAttribute("aria-pressed", String(wraps));
  },
  save,
  async preview(figure, button) {
    const { showPreview } = await import("./preview.js");
    showPreview({ source: figure.querySelector("code").textContent, language: figure.dataset.language, opener: button });
  },
};

export const act = (button) => acts[button.dataset.code]?.(button.closest("figure"), button);
