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

  let shown = 0; // drawings so far: only the newest one counts

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
      if (String(source).length > LONGEST) throw new Error("it is too long");
      configure(isDark);
      const { svg } = await globalThis.mermaid.render("drawing", String(source));
      if (number !== shown) return;
      show(svg);
      port.postMessage({ height: height() });
    } catch (error) {
      port.postMessage({ error: String(error?.message ?? error) });
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
