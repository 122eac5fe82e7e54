// What a person says of an answer. The page shows it when its event comes, here and in other tabs.
import { showError } from "../composer/box.js";
import { open } from "../session/dialogs.js";
import { call } from "../support/api.js";

// Returns rate(message, thumb), which rates an answer at once, or without a thumb shows the dialog to change its rating.
export function watchRatingDialog(dialog, api) {
  if (!dialog) return undefined; // the session is archived
  const form = dialog.querySelector("form");
  const box = form.querySelector("#rating-error");
  const takeBack = form.querySelector("[data-take-back]");
  let id = "";

  const put = (values) => call("PUT", `${api}/messages/${encodeURIComponent(id)}/rating`, values);

  async function close(values) {
    box.hidden = true;
    try {
      await put(values);
      dialog.close();
    } catch (error) {
      showError(box, error);
    }
  }

  function show({ thumb, comment }) {
    form.elements.thumb.value = thumb;
    form.elements.comment.value = comment;
    box.hidden = true;
    open(dialog);
    form.elements.comment.focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    close({ thumb: form.elements.thumb.value, comment: form.elements.comment.value.trim() });
  });
  takeBack.addEventListener("click", () => close({ thumb: "" }));

  return async (message, thumb = "") => {
    id = message.dataset.message;
    if (!thumb) return show((await call("GET", `${api}/ratings?message_id=${encodeURIComponent(id)}`)).items[0] ?? { thumb: "", comment: "" });
    await put({ thumb });
    if (thumb === "down") show({ thumb, comment: "" });
    return undefined;
  };
}
