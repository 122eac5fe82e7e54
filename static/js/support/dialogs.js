// Resolves when an open dialog is closed. Browsers report a close in a task of its own, so a dialog that is opened again at once
// may still hear of the previous one.
export function closed(dialog) {
  return new Promise((resolve) => {
    dialog.addEventListener("close", function ended() {
      if (dialog.open) return;
      dialog.removeEventListener("close", ended);
      resolve();
    });
  });
}
