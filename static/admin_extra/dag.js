// Draws a summary DAG as SVG: dagre says where, this file says what. Nothing runs without a drawing's values, and
// the nested list beside it says the same without a drawing.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const NODE = { width: 168, height: 46 };
  const BOX = { width: 132, height: 30 };
  const MARGIN = 16;
  const ZOOM = { least: 0.15, most: 2, step: 1.25 };

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  // Left is earlier. dagre's own order has fewer crossings in theory; a history read from right to left has no reader.
  const orderInTime = (firsts) => (graph) => {
    // dagre hands on no more of a node than its size. A long edge takes the place of where it leads.
    const first = (name) => firsts.get(name) ?? firsts.get(graph.node(name).edgeObj?.w) ?? 0;
    const ranks = new Map();
    for (const name of graph.nodes()) {
      const { rank } = graph.node(name);
      if (rank !== undefined) ranks.set(rank, [...(ranks.get(rank) ?? []), name]);
    }
    for (const names of ranks.values()) {
      names.sort((one, other) => first(one) - first(other));
      names.forEach((name, index) => (graph.node(name).order = index));
    }
  };

  const layout = (drawing) => {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 44, marginx: MARGIN, marginy: MARGIN });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of drawing.nodes) graph.setNode(node.id, { ...NODE });
    for (const box of drawing.boxes) graph.setNode(`box ${box.id}`, { ...BOX });
    const boxes = drawing.boxes.map((box) => [`box ${box.id}`, box.first]);
    const firsts = new Map([...drawing.nodes.map((node) => [node.id, node.first]), ...boxes]);
    for (const [from, to] of drawing.edges) graph.setEdge(from, graph.hasNode(to) ? to : `box ${to}`);
    dagre.layout(graph, { customOrder: orderInTime(firsts) });
    return graph;
  };

  const edgePath = ({ points }) => points.map(({ x, y }, index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  const link = (url, label, className, place, texts) => {
    const { x, y, width, height } = place;
    const rect = element("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 7 });
    const lines = texts.map((text, index) => {
      const offset = (index - (texts.length - 1) / 2) * 16;
      return element("text", { x, y: y + offset, class: index ? "dag-detail" : "dag-name" }, text);
    });
    const made = element("a", { class: className, "aria-label": label }, element("title", {}, label), rect, ...lines);
    if (url) made.setAttribute("href", url);
    return made;
  };

  const classesOf = (node) => {
    const marks = [node.active && "is-active", node.superseded && "is-superseded", node.stale && "is-stale"].filter(Boolean);
    return ["dag-node", `dag-${node.kind}`, `level-${node.level}`, ...marks].join(" ");
  };

  const draw = (drawing) => {
    const graph = layout(drawing);
    const { width, height } = graph.graph();
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Summaries and what they stand for" });
    const superseded = new Set(drawing.nodes.filter((node) => node.superseded).map((node) => node.id));
    for (const { v, w } of graph.edges()) {
      const dimmed = superseded.has(v) || superseded.has(w) ? " is-superseded" : "";
      svg.append(element("path", { class: `dag-edge${dimmed}`, d: edgePath(graph.edge(v, w)) }));
    }
    for (const node of drawing.nodes) {
      svg.append(link(node.url, node.label, classesOf(node), graph.node(node.id), [node.name, node.detail]));
    }
    for (const box of drawing.boxes) {
      svg.append(link(box.url, box.name, "dag-box", graph.node(`box ${box.id}`), [box.name]));
    }
    return { svg, width, height };
  };

  const button = (text, label, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };

  const show = (place) => {
    const { svg, width, height } = draw(JSON.parse(document.getElementById(place.dataset.source).textContent));
    const view = document.createElement("div");
    view.className = "dag-view";
    let zoom = 1;
    const set = (wanted) => {
      const middle = (view.scrollLeft + view.clientWidth / 2) / zoom;
      zoom = Math.min(ZOOM.most, Math.max(ZOOM.least, wanted));
      svg.setAttribute("width", Math.round(width * zoom));
      svg.setAttribute("height", Math.round(height * zoom));
      view.scrollLeft = middle * zoom - view.clientWidth / 2;
    };
    const fit = () => set(Math.min(1, view.clientWidth / width));
    const tools = document.createElement("div");
    tools.className = "dag-tools";
    tools.append(
      button("−", "Smaller", () => set(zoom / ZOOM.step)),
      button("+", "Larger", () => set(zoom * ZOOM.step)),
      button("Fit", "Fit the width", fit),
    );
    view.append(svg);
    place.append(tools, view);
    place.hidden = false;
    fit();
    // Too small to read is no drawing: then readable, scrolled to what is in the context now.
    if (zoom < 0.6) {
      set(0.8);
      const active = svg.querySelector(".is-active rect") ?? svg.querySelector("rect");
      if (active) view.scrollLeft = (Number(active.getAttribute("x")) + NODE.width / 2) * zoom - view.clientWidth / 2;
    }
  };

  for (const place of document.querySelectorAll("[data-source].dag")) show(place);
})();
