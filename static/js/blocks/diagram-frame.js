// Draws one diagram in a frame of no origin. The page (diagrams.js) sends the library and a port, then over the port the
// source and the colours; the answer is the height of the drawing, whenever it changes, or what is wrong with the source. A classic script, since
// a document without an origin may not load modules.
(() => {
  const LONGEST = 20_000; // characters
  const MOST_EDGES = 500;
  const SMALLEST = 0.5; // of a drawing's own size: a wider one scrolls
  const EDGE = 12; // pixels around it, and for a scroll bar
  // What a source may not set, at any depth.
  const SECURE = ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "themeCSS", "dompurifyConfig", "logLevel", "fontFamily", "altFontFamily"];

  // Of mind maps, pies and other diagrams whose colours only tell things apart: some that text is read on.
  const COLOURS = {
    light: ["#9fd3be", "#aab8ea", "#e9bf8c", "#d6a6da", "#9bcfde", "#e8a9ad", "#bdd694", "#bab4ea", "#ecc777", "#a5d6c3", "#c9b0e6", "#ecb19f"],
    dark: ["#2f6f5f", "#4b5f9e", "#8a5a2b", "#7a4b7f", "#3f7a8c", "#8c4a52", "#5d7a3a", "#5b57a8", "#8f6325", "#4a7f6a", "#7d5a9a", "#96584a"],
  };
  // Mermaid puts the label of a round node of a mind map where HTML would begin.
  const STYLES = ".mindmap-node > circle ~ .label tspan { text-anchor: middle; }";

  let shown = 0; // drawings so far: only the newest one counts

  function coloursOf(isDark) {
    const colours = COLOURS[isDark ? "dark" : "light"].flatMap((colour, at) => [[`cScale${at}`, colour], [`pie${at + 1}`, colour]]);
    return Object.fromEntries([...colours, ["scaleLabelColor", isDark ? "#f5f5f0" : "#1c1c18"], ["git0", "#1f6f5c"], ["gitBranchLabel0", "#ffffff"]]);
  }

  function configure(isDark) {
    globalThis.mermaid.initialize({
      startOnLoad: false,
      securityLevel: "strict",
      secure: SECURE,
      htmlLabels: false,
      flowchart: { htmlLabels: false },
      maxTextSize: LONGEST,
      maxEdges: MOST_EDGES,
      suppressErrorRendering: true,
      logLevel: "fatal",
      fontFamily: "system-ui, sans-serif",
      theme: isDark ? "dark" : "default",
      themeVariables: coloursOf(isDark),
      themeCSS: STYLES,
    });
    document.documentElement.style.colorScheme = isDark ? "dark" : "light";
    Object.assign(document.body.style, { margin: "0", padding: `${EDGE}px` });
  }

  function show(drawn) {
    document.body.innerHTML = drawn;
    const svg = document.body.querySelector("svg");
    for (const link of svg.querySelectorAll("a")) for (const name of ["href", "xlink:href", "target"]) link.removeAttribute(name);
    const { width } = svg.viewBox.baseVal ?? svg.getBoundingClientRect();
    svg.removeAttribute("height");
    svg.setAttribute("width", "100%");
    Object.assign(svg.style, { display: "block", marginInline: "auto", height: "auto", maxWidth: `${width}px`, minWidth: `${width * SMALLEST}px` });
  }

  function height() {
    const { scrollWidth, clientWidth } = document.documentElement;
    return Math.ceil(document.body.getBoundingClientRect().height) + (scrollWidth > clientWidth ? EDGE : 0);
  }

  async function draw(port, { source, isDark }) {
    const number = (shown += 1);
    try {
      if (String(source).length > LONGEST) return port.postMessage({ isTooLong: true });
      configure(isDark);
      const { svg } = await globalThis.mermaid.render("drawing", String(source));
      if (number !== shown) return undefined;
      show(svg);
      return port.postMessage({ height: height() });
    } catch (error) {
      return port.postMessage({ error: String(error?.message ?? error) });
    }
  }

  addEventListener("message", ({ source, data, ports: [port] }) => {
    if (source !== parent || !port) return;
    // The frame's policy permits no other text than the library's, by its hash.
    document.head.append(Object.assign(document.createElement("script"), { textContent: data }));
    port.onmessage = ({ data }) => draw(port, data);
    new ResizeObserver(() => document.querySelector("svg") && port.postMessage({ height: height() })).observe(document.body);
  });
})();
