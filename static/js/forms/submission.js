// A form that a script sends.
import { showError } from "../composer/box.js";

// Does what a form inside an element asks for while its button waits, and says in a box what went wrong.
// The button stays as it is where all went well: a page opens, or the form goes.
export function onSubmit(element, boxId, work) {
  element?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const box = document.getElementById(boxId);
    const button = event.target.querySelector("[type=submit]");
    box.hidden = button.disabled = true;
    try {
      await work(event.target.elements, event.target);
    } catch (error) {
      showError(box, error);
      button.disabled = false;
    }
  });
}
