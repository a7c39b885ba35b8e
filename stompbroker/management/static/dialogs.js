/* Questions before something is done, and what came of it.
 *
 * Law: what cannot be undone is asked about, with what will be lost in the question. What was done stays on the page
 * until it is put away.
 */

import { make } from "./elements.js";
import { button } from "./parts.js";

/**
 * Ask, and do it on a yes. `act` gets the form's fields; the dialog stays open, and says why, if it fails.
 * Resolves when the dialog is gone.
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

/** Do something that needs no question; say so if it fails. */
export async function attempt(action) {
  try {
    await action();
  } catch (error) {
    say(error.message, { isProblem: true });
  }
}
