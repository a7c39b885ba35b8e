/* A message's headers and its body.
 *
 * Law: a body is shown as text or in hexadecimal, never rendered.
 */

import { make } from "./elements.js";
import { bytes } from "./format.js";
import { panel } from "./parts.js";

/** Characters of a body's base64: 48 KiB of the body are shown. */
const SHOWN_BASE64 = 64 * 1024;

export const headers = (message) =>
  panel(
    "Headers",
    make(
      "dl",
      { class: "facts headers" },
      message.headers.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
    ),
  );

export function body(message) {
  const { text, kind, isCut } = readBody(message.body);
  return panel(
    "Body",
    make("p", { class: "muted" }, `${bytes(message.body_bytes)}${kind}${isCut ? "; the beginning" : ""}`),
    message.body_bytes > 0 && make("pre", { class: "body", tabindex: "0" }, text),
  );
}

/** As text if it is UTF-8, else in hexadecimal. */
function readBody(base64) {
  const isCut = base64.length > SHOWN_BASE64;
  const octets = Uint8Array.from(atob(base64.slice(0, SHOWN_BASE64)), (character) => character.charCodeAt(0));
  try {
    // The cut may split a character.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(octets, { stream: isCut });
    return { text, kind: "", isCut };
  } catch {
    const lines = [];
    for (let start = 0; start < octets.length; start += 16) {
      const part = [...octets.slice(start, start + 16)].map((octet) => octet.toString(16).padStart(2, "0"));
      lines.push(`${start.toString(16).padStart(6, "0")}  ${part.join(" ")}`);
    }
    return { text: lines.join("\n"), kind: ", not text; in hexadecimal", isCut };
  }
}
