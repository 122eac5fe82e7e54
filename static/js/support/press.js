// Whether a button of the pointer is down. A press is a click only where it begins and ends on the same element, so what
// refreshes by itself must not replace elements meanwhile.
let isDown = false;
const waiting = [];

function release() {
  isDown = false;
  for (const resume of waiting.splice(0)) setTimeout(resume); // after the click, which follows the release
}

addEventListener("pointerdown", () => (isDown = true), true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, release, true);
// Browsers may keep the end of a press to themselves: on a scroll bar, in a menu, or in another window.
addEventListener("pointermove", ({ buttons }) => buttons || release(), true);
addEventListener("blur", release);

export const isPressed = () => isDown;

// Resolves at once, or after the press that goes on.
export const released = () => (isDown ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve());
