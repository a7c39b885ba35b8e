/* Confirmations, and notices of what was done.
 *
 * Law: an action that cannot be undone needs a confirmation that says what will be lost. A notice stays until it is
 * dismissed.
 */

import { make } from "./elements.js";
import { button } from "./parts.js";

/**
 * Ask, and act if confirmed. `act` gets the form's fields; if it fails, the dialog stays open and says why.
 * Resolves when the dialog is closed.
 */
export function ask({ title, content, yes, isDangerous = false, act }) {
  const problem = make("p", { class: "problem", role: "alert", hidden: true });
  const doIt = make("button", { type: "submit", class: isDangerous ? "danger" : "primary" }, yes);
  const dialog = make("dialog", { "aria-label": title });
  const form = make(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        doIt.disabled = true;
        try {
          await act(new FormData(form));
          dialog.close();
        } catch (error) {
          problem.textContent = error.message;
          problem.hidden = false;
          doIt.disabled = false;
        }
      },
    },
    make("h2", {}, title),
    ...content,
    problem,
    make(
      "div",
      { class: "buttons" },
      button("Cancel", () => dialog.close(), { autofocus: isDangerous }),
      doIt,
    ),
  );
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      dialog.remove();
      resolve();
    };
  });
}

/** Say what was done, or what went wrong. */
export function say(text, { isProblem = false, more = [] } = {}) {
  const notice = make(
    "div",
    { class: `notice ${isProblem ? "bad" : "good"}` },
    make(
      "div",
      {},
      make("p", {}, text),
      more.length > 0 &&
        make(
          "ul",
          {},
          more.map((line) => make("li", {}, line)),
        ),
    ),
    button("Dismiss", () => notice.remove()),
  );
  document.getElementById("notices").replaceChildren(notice);
}

/** Act without a confirmation; say so if it fails. */
export async function attempt(action) {
  try {
    await action();
  } catch (error) {
    say(error.message, { isProblem: true });
  }
}
