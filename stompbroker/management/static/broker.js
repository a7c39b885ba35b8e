/* Talking to the broker.
 *
 * Law: only this module sends requests and knows the login, which goes with each request and is kept for this tab
 * alone. One stream of events is open at a time; a lost stream is opened again, with a growing delay, until it is closed
 * or the broker asks for a login.
 */

const API = "/api/v1";
const LOGIN = "stompbroker login";
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 10_000;
/** An event comes every second; after this much silence the broker is gone. */
const SILENCE_MS = 10_000;

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// The login ----------------------------------------------------------------------------------------------------------

export const hasLogin = () => sessionStorage.getItem(LOGIN) != null;
export const forgetLogin = () => sessionStorage.removeItem(LOGIN);

/** Without a name, the secret is a token. */
export function keepLogin(name, secret) {
  const octets = new TextEncoder().encode(`${name}:${secret}`);
  const basic = btoa(Array.from(octets, (octet) => String.fromCharCode(octet)).join(""));
  sessionStorage.setItem(LOGIN, name ? `Basic ${basic}` : `Bearer ${secret}`);
}

// Asking -------------------------------------------------------------------------------------------------------------

/** A path from its parts, which are escaped: clients choose them. */
export const path = (...parts) => parts.map((part) => `/${encodeURIComponent(part)}`).join("");

/** A query of the values that are given. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const get = (resource) => ask("GET", resource);
export const post = (resource, fields = {}) => ask("POST", resource, fields);
export const remove = (resource) => ask("DELETE", resource);

async function ask(method, resource, fields) {
  const headers = fields === undefined ? {} : { "Content-Type": "application/json" };
  const body = fields === undefined ? undefined : JSON.stringify(fields);
  let response;
  try {
    response = await send(API + resource, { method, body, headers });
  } catch {
    throw new Problem(0, "The broker does not answer.");
  }
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

function send(address, options) {
  const login = sessionStorage.getItem(LOGIN);
  const headers = { ...options.headers, ...(login != null && { Authorization: login }) };
  return fetch(address, { ...options, headers, cache: "no-store" });
}

async function problemOf(response) {
  const said = await response.json().catch(() => ({}));
  return new Problem(response.status, said.detail ?? `The broker answers with ${response.status}.`);
}

// Watching -----------------------------------------------------------------------------------------------------------

export class Watch {
  /** `listener` has `opened()`, `event(name, value)`, `lost()` and `refused(problem)`. */
  constructor(listener) {
    this.listener = listener;
    this.resource = null;
    this.current = null;
    this.retryMs = FIRST_RETRY_MS;
    this.retry = null;
  }

  /** Open a stream of the overview and, if given, a list with its query. It replaces the stream before. */
  open(resource) {
    this.resource = resource;
    this.close();
    const current = new AbortController();
    this.current = current;
    this.read(current).catch((problem) => {
      if (this.current !== current) return;
      current.abort();
      if (problem instanceof Problem && problem.status < 500) {
        this.listener.refused(problem);
        return;
      }
      this.listener.lost(problem instanceof Problem ? problem : null);
      this.retry = setTimeout(() => this.open(this.resource), this.retryMs);
      this.retryMs = Math.min(this.retryMs * 2, LONGEST_RETRY_MS);
    });
  }

  close() {
    this.current?.abort();
    this.current = null;
    clearTimeout(this.retry);
  }

  async read(current) {
    const silence = new Silence(() => current.abort());
    try {
      const wanted = query({ resource: this.resource });
      const response = await send(`${API}/events${wanted}`, { signal: current.signal });
      if (!response.ok) throw await problemOf(response);
      if (this.current === current) this.listener.opened();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        silence.begin();
        const { done, value } = await reader.read();
        if (done || this.current !== current) throw new Error("the stream has ended");
        this.retryMs = FIRST_RETRY_MS;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) {
          if (this.current === current) this.listener.event(...parsed(event));
        }
      }
    } finally {
      silence.end();
    }
  }
}

/** The name of an event and its data. */
function parsed(event) {
  let name = "message";
  let data = "";
  for (const line of event.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return [name, JSON.parse(data)];
}

class Silence {
  constructor(whenTooLong) {
    this.whenTooLong = whenTooLong;
    this.begin();
  }

  begin() {
    this.end();
    this.timer = setTimeout(this.whenTooLong, SILENCE_MS);
  }

  end() {
    clearTimeout(this.timer);
  }
}
