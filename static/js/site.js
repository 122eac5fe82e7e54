// Runs the modules that the page names, in their order. Outside of development this file has them all in it
// (sessions_app/pages/bundles.py), and they run at once.
for (const name of document.body.dataset.modules.trim().split(/\s+/)) await import(`./${name}.js`).catch(reportError);
