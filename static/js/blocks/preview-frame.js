// Shows HTML or SVG that a model wrote, in a frame within this one that may run no script at all. This document's policy
// holds there, too: styles and pictures within the text, and nothing from elsewhere. What could reach for another host
// beside the policy (a preconnect), or lead there, is taken out.
(() => {
  const LONGEST = 400_000; // characters
  const DROPPED = "script, link, meta, base, iframe, frame, frameset, object, embed, portal, fencedframe, template, noscript";
  const LEADS = ["href", "xlink:href", "ping", "action", "formaction", "target", "attributionsrc"];
  const MOST_ROUNDS = 5;

  function cleanedOnce(html) {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const element of page.querySelectorAll(DROPPED)) element.remove();
    for (const element of page.querySelectorAll("*")) {
      for (const { name, value } of [...element.attributes]) {
        if (name.startsWith("on") || (LEADS.includes(name) && !value.startsWith("#"))) element.removeAttribute(name);
      }
    }
    return `<!DOCTYPE html>${page.documentElement.outerHTML}`;
  }

  // What is written is read again, and may be something else then. Returns nothing if it never comes to rest.
  function cleaned(html) {
    let before = html;
    for (let round = 0; round < MOST_ROUNDS; round += 1) {
      const after = cleanedOnce(before);
      if (after === before) return after;
      before = after;
    }
    return "";
  }

  addEventListener("message", ({ source, data }) => {
    if (source !== parent || typeof data?.source !== "string" || data.source.length > LONGEST) return;
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "");
    frame.title = data.title;
    frame.srcdoc = cleaned(data.source) || `<!DOCTYPE html><p>${data.refusal}</p>`;
    Object.assign(frame.style, { display: "block", width: "100%", height: "100vh", border: "0", background: "white", colorScheme: "light" });
    document.body.style.margin = "0";
    document.body.replaceChildren(frame);
  });
})();
