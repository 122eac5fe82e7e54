// The dialog that moves a session into a project or out of it, wherever a session has a menu.
import { onSubmit } from "../forms/submission.js";
import { call, fetchPart } from "../support/api.js";

const apiOf = (sessionId) => `/api/sessions/${encodeURIComponent(sessionId)}`;
export const setProject = (sessionId, projectId) => call("PATCH", apiOf(sessionId), { project_id: projectId });

async function move(sessionId, { project, name }) {
  const wanted = name.value.trim();
  const id = wanted ? (await call("POST", "/api/projects", { name: wanted })).id : project?.value ?? "";
  await setProject(sessionId, id);
  document.dispatchEvent(new Event("mnesis:sessions")); // for the sidebar, which may have one more project
}

// Resolves to whether the session was moved.
export async function moveSession(sessionId) {
  const part = await fetchPart(`/sessions/${encodeURIComponent(sessionId)}/move/`);
  const dialog = part.querySelector("dialog");
  document.body.append(part);
  let isMoved = false;
  onSubmit(dialog, "move-error", async (fields) => {
    await move(sessionId, fields);
    isMoved = true;
    dialog.close();
  });
  dialog.addEventListener("click", ({ target }) => target.closest("[data-close]") && dialog.close());
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  dialog.remove();
  return isMoved;
}

// What the page of a session says of its project. Returns a function that shows it as it is now.
export function watchProject(sessionId, onError) {
  const { part: address } = document.getElementById("session-project").dataset;
  async function show() {
    const part = await fetchPart(address).catch(() => null);
    if (part) document.getElementById("session-project").replaceWith(part);
  }
  document.addEventListener("click", ({ target }) => {
    if (target.closest("[data-move-session]")) {
      target.closest("details").open = false;
      moveSession(sessionId).catch(onError);
    }
    if (target.closest("[data-leave-project]")) setProject(sessionId, "").catch(onError);
  });
  return show;
}
