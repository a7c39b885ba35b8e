/* Makes and updates the elements of the page.
 *
 * Law: a client's text can never become markup, turn the direction of writing, or hide. An update touches only what
 * differs, so that focus, selection and scroll position survive new numbers every second. Children with the same
 * `data-key` are the same thing, wherever they stand.
 */

const SVG = "http://www.w3.org/2000/svg";
/* Controls, and marks without a width or with a direction. Line ends, tabs and joiners, which words need, stay. */
const UNSEEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onpointermove", "onpointerleave"];

/** An element. Properties that are functions are handlers; null and false leave one out, true is an empty attribute. */
export const make = (tag, properties, ...children) => built(document.createElement(tag), properties, children);

/** An element of a drawing. */
export const draw = (tag, properties, ...children) => built(document.createElementNS(SVG, tag), properties, children);

function built(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === "function") element[name] = value;
    else if (name === "checked") element.checked = value;
    else if (value != null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...shown(children));
  if (properties?.value != null && element.tagName === "SELECT") element.value = properties.value;
  return element;
}

/** Children for the page; what cannot be seen in a text is written as \uXXXX. */
function shown(children) {
  const escaped = (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`;
  return children
    .flat(Infinity)
    .filter((child) => child != null && child !== false)
    .map((child) => (typeof child === "string" ? child.replace(UNSEEN, escaped) : child));
}

/** Make `place` hold exactly these children. */
export function renew(place, ...children) {
  const focused = document.activeElement;
  const wanted = document.createDocumentFragment();
  wanted.append(...shown(children));
  renewChildren(place, wanted);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

/** Make `element` equal to `wanted`. */
export function renewElement(element, wanted) {
  for (const name of element.getAttributeNames()) {
    if (!wanted.hasAttribute(name) && name !== "open") element.removeAttribute(name);
  }
  for (const name of wanted.getAttributeNames()) {
    const value = wanted.getAttribute(name);
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
  for (const handler of HANDLERS) {
    if (element[handler] !== wanted[handler]) element[handler] = wanted[handler];
  }
  renewChildren(element, wanted);
  if ("checked" in wanted) element.checked = wanted.checked;
  // Never overwrite what somebody is typing.
  if ("value" in wanted && element !== document.activeElement && element.value !== wanted.value) {
    element.value = wanted.value;
  }
}

function renewChildren(place, wanted) {
  const keyed = new Map();
  for (const child of place.children) {
    if (keyOf(child) != null) keyed.set(keyOf(child), child);
  }
  let next = place.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = keyOf(child);
    const found = key == null ? next : keyed.get(key);
    if (found == null || !areAlike(found, child)) {
      place.insertBefore(child, next);
      continue;
    }
    keyed.delete(key);
    if (found === next) next = next.nextSibling;
    else place.insertBefore(found, next);
    if (found.nodeType === Node.ELEMENT_NODE) renewElement(found, child);
    else if (found.data !== child.data) found.data = child.data;
  }
  while (next != null) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

const keyOf = (node) => node.dataset?.key ?? null;

const areAlike = (one, other) =>
  one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
