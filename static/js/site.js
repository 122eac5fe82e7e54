// Runs the modules that the page names, in their order. Outside of development this file has them all in it
// (sessions_app/pages/bundles.py), and they run at once.

// A page that the browser has rendered in advance (decision 246) is visited when it is activated, and seen before its modules run.
if (document.prerendering) {
  await new Promise((resolve) => document.addEventListener("prerenderingchange", resolve, { once: true }));
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}
for (const name of document.body.dataset.modules.trim().split(/\s+/)) await import(`./${name}.js`).catch(reportError);
dispatchEvent(new Event("mnesis:modules"));
