/* The page: which view is shown, and what keeps it live.
 *
 * Law: the address names the view. One stream feeds it: an overview every second, and the list that the view shows. A
 * view of a single thing requests it whenever an overview comes, one request at a time.
 */

import { forgetLogin, get, hasLogin, keepLogin, Problem, Watch } from "./broker.js";
import { secondsSince, setClock } from "./clock.js";
import { connectionsKind } from "./connections.js";
import { deadLetterView } from "./dead_letter.js";
import { deadLettersView, deadLetterTopicsView } from "./dead_letters.js";
import { make, renew } from "./elements.js";
import { age, several } from "./format.js";
import { lastValuesKind, lastValueView } from "./last_values.js";
import { listView } from "./list.js";
import { overviewView, remember } from "./overview.js";
import { button, chip, empty, link } from "./parts.js";
import { subscriptionsKind, subscriptionView } from "./subscriptions.js";
import { queuesKind, queueView, topicsKind, topicView } from "./topics.js";

const list = (kind) => (context, route) => listView(kind, context, route);

/** The view for each path; `*` stands for one name. */
const VIEWS = [
  ["/", overviewView],
  ["/topics", list(topicsKind)],
  ["/topics/*", topicView],
  ["/queues", list(queuesKind)],
  ["/queues/*", queueView],
  ["/subscriptions", list(subscriptionsKind)],
  ["/subscriptions/*", subscriptionView],
  ["/dead-letters", deadLetterTopicsView],
  ["/dead-letters/*", deadLettersView],
  ["/dead-letters/*/*", deadLetterView],
  ["/last-values", list(lastValuesKind)],
  ["/last-values/*", lastValueView],
  ["/connections", list(connectionsKind)],
];

/** How the broker calls whoever has its token. */
const TOKEN_HOLDER = ":token";

const place = (id) => document.getElementById(id);
const tab = (name) => document.querySelector(`#nav a[href="#/${name}"]`);
const main = place("main");

const page = {
  view: null,
  path: null,
  address: null,
  overview: null,
  /** Who is logged in, and what that user may do; null until the broker has said so. */
  me: null,
  /** The problem that is shown instead of content. */
  problem: null,
  isLost: false,
  whyLost: null,
  isHeld: false,
  isAskingForLogin: false,
  isTicking: false,
};

const watch = new Watch({
  opened: learnWhoIAm,
  event(name, value) {
    page.isLost = false;
    if (name === "overview") takeOverview(value);
    else if (name === "page") page.view.page?.(value);
    else takeProblem(value);
    showEverything();
  },
  lost(problem) {
    page.isLost = true;
    page.whyLost = problem?.message ?? null;
    showAround();
  },
  refused(problem) {
    if (problem.status === 401) askForLogin(problem.message);
    else takeProblem({ status: problem.status, detail: problem.message });
    showEverything();
  },
});

/** Ask anew with every stream: the broker ends one when what its user may do has changed. */
async function learnWhoIAm() {
  try {
    page.me = await get("/me");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) askForLogin(error.message);
    return;
  }
  showEverything();
}

function takeOverview(overview) {
  page.overview = overview;
  setClock(overview.broker);
  remember(overview, showEverything);
  tick(overview);
}

function takeProblem(said) {
  if (page.view.problem) page.view.problem(said);
  else page.problem = said.detail;
}

/** Let a view of a single thing request it. */
async function tick(overview) {
  const { view } = page;
  if (!view.tick || page.isTicking) return;
  page.isTicking = true;
  try {
    await view.tick(overview);
    if (view === page.view) page.problem = null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) askForLogin(error.message);
    else if (view === page.view && error.status !== 0) page.problem = error.message;
  } finally {
    page.isTicking = false;
  }
  if (view === page.view) showEverything();
  else if (page.view.tick) tick(overview);
}

// Showing ------------------------------------------------------------------------------------------------------------

function showEverything() {
  showAround();
  if (!page.isHeld) showView();
}

function showView() {
  if (page.isAskingForLogin || (page.view.isWaiting?.() && main.dataset.path === page.path)) return;
  main.dataset.path = page.path;
  document.title = `${page.view.title} – stompbroker`;
  if (page.problem) {
    renew(
      main,
      make("h1", { tabindex: "-1" }, page.view.title),
      empty(make("p", { class: "problem" }, page.problem), link("#/", "Overview")),
    );
  } else renew(main, page.view.content());
}

/** Everything around the view. It stays live while the view is held. */
function showAround() {
  const words = page.isAskingForLogin
    ? "Closed"
    : page.isLost
      ? "Lost"
      : page.isHeld
        ? "Held"
        : page.overview
          ? "Live"
          : "Connecting";
  const state = place("state");
  if (state.textContent !== words) state.textContent = words;
  state.className = `state ${words.toLowerCase()}`;
  document.body.classList.toggle("stale", page.isLost);
  renew(place("banners"), banners());
  renew(place("foot"), foot());
  renew(place("me"), me());
  place("hold").hidden = page.isAskingForLogin;
  tab("connections").hidden = Boolean(page.me?.is_restricted);
  // Few use them.
  tab("last-values").hidden = !page.overview?.now.last_values && !tab("last-values").hasAttribute("aria-current");
}

function banners() {
  const found = [];
  const { overview } = page;
  if (page.isLost) {
    found.push(
      banner(
        "lost",
        "bad",
        `${page.whyLost ?? "There is no connection to the broker."} It is tried again by itself.`,
        // Screen readers should not announce this every second.
        overview &&
          make("span", { "aria-live": "off" }, `What you see is ${age(secondsSince(overview.sampled_at))} old.`),
        button("Try now", () => watch.open(page.view.resource)),
      ),
    );
  }
  // Numbers of an earlier connection may be out of date.
  if (overview == null || page.isLost || page.isAskingForLogin) return found;
  const { store, now, broker } = overview;
  if (broker.state === "stopping") found.push(banner("stopping", "warn", "The broker is stopping."));
  if (store.state !== "ok") {
    const what = { failing: "The store is failing", damaged: "The store is damaged" }[store.state] ?? "The store is low on space";
    found.push(
      banner(
        "store",
        "bad",
        `${what}${store.reason ? `: ${store.reason}` : ""}.`,
        store.since && make("span", { "aria-live": "off" }, `For ${age(secondsSince(store.since))}.`),
      ),
    );
  }
  if (now.blocked_topics) {
    found.push(
      banner(
        "blocked",
        "warn",
        `${several(now.blocked_topics, "topic is", "topics are")} blocked: a subscriber does not keep up, and publishers are held back.`,
        link("#/subscriptions", "Who is behind"),
      ),
    );
  }
  return found;
}

const banner = (key, kind, text, ...more) =>
  make("div", { class: `banner ${kind}`, "data-key": key }, make("span", {}, text), ...more);

function foot() {
  return [
    page.overview &&
      make("span", {}, `stompbroker ${page.overview.broker.version}, up ${age(page.overview.broker.uptime_s)}`),
    make("a", { href: "/api/docs" }, "API"),
  ];
}

/** Who is logged in, and the way out. */
function me() {
  if (!hasLogin() || page.isAskingForLogin) return [];
  const { user, is_operator: isOperator, is_restricted: isRestricted } = page.me ?? {};
  const role = isOperator ? "operator" : "viewer";
  const reach = isRestricted ? "what its patterns allow" : "the whole broker";
  return [
    user && make("span", { class: "user" }, user === TOKEN_HOLDER ? "Token" : user),
    user && chip("", role, `${isOperator ? "May see and change" : "May see"} ${reach}`),
    button("Log out", () => askForLogin(null)),
  ];
}

// The login ----------------------------------------------------------------------------------------------------------

/** `why` is what the broker said to the login before, if there was one. */
function askForLogin(why) {
  const wasGiven = hasLogin();
  watch.close();
  forgetLogin();
  page.isAskingForLogin = true;
  page.overview = page.me = null;
  const name = make("input", { name: "name", id: "name", autocomplete: "username", spellcheck: "false" });
  const secret = make("input", {
    type: "password",
    name: "secret",
    id: "secret",
    autocomplete: "current-password",
    required: true,
    oninput: () => secret.setCustomValidity(""),
  });
  main.replaceChildren(
    make(
      "form",
      {
        class: "login panel",
        onsubmit: (event) => {
          event.preventDefault();
          if (!name.value && !/^[!-~]+$/.test(secret.value)) {
            secret.setCustomValidity("A token has letters, digits and signs, no blanks. A password needs a name.");
            secret.reportValidity();
            return;
          }
          keepLogin(name.value, secret.value);
          page.isAskingForLogin = false;
          delete main.dataset.path;
          main.replaceChildren();
          showAddress(true);
        },
      },
      make("h1", {}, "This broker asks for a login"),
      make(
        "p",
        {},
        "Give the name and password of a user; or no name and a token: a JSON Web Token, or what the settings ",
        make("code", {}, "http_token"),
        " or ",
        make("code", {}, "http_token_file"),
        " say. It is kept until you log out or close this tab.",
      ),
      wasGiven && why && make("p", { class: "problem", role: "alert" }, `${why[0].toUpperCase()}${why.slice(1)}.`),
      make("label", { for: "name" }, "Name"),
      name,
      make("label", { for: "secret" }, "Password or token"),
      secret,
      make("div", { class: "buttons" }, make("button", { type: "submit", class: "primary" }, "Log in")),
    ),
  );
  name.focus();
  showAround();
}

// Finding the view ---------------------------------------------------------------------------------------------------

const context = {
  overview: () => page.overview,
  /** Whether the user sees the whole broker, and whether it may change what concerns all of it. */
  seesAll: () => page.me != null && !page.me.is_restricted,
  changesAll: () => page.me != null && !page.me.is_restricted && page.me.is_operator,
  /** The view that the address names now. */
  query: () => readAddress().query,
  refresh: showView,
  push: (hash, state) => turnTo("pushState", hash, state),
  replace: (hash, state) => turnTo("replaceState", hash, state),
};

function turnTo(how, hash, state) {
  history[how](state, "", hash);
  showAddress();
}

function showAddress(isAnew = false) {
  const { path, query } = readAddress();
  const address = `${location.hash} ${JSON.stringify(history.state)}`;
  if (address === page.address && !isAnew) return;
  const isFirst = page.address == null;
  const hasMoved = path !== page.path;
  page.address = address;
  page.path = path;
  page.problem = null;
  page.view?.leave?.();
  page.view = makeView(path, query);
  showWhereWeAre(path);
  if (page.isAskingForLogin) return;
  hold(false);
  if (hasMoved) {
    main.replaceChildren();
    showView();
    if (!isFirst) focusHeading();
  }
  watch.open(page.view.resource);
}

function readAddress() {
  const hash = location.hash.startsWith("#/") ? location.hash.slice(1) : "/";
  const [path, search = ""] = hash.split("?", 2);
  return { path, query: new URLSearchParams(search) };
}

function makeView(path, query) {
  for (const [pattern, create] of VIEWS) {
    const parts = matched(pattern, path);
    if (parts) return create(context, { parts, query, state: history.state });
  }
  page.problem = "There is no such page.";
  return { title: "Not found", resource: null, content: () => [] };
}

/** The names in a path, if it matches the pattern. */
function matched(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (
    wanted.length !== given.length ||
    !wanted.every((part, index) => part === given[index] || (part === "*" && given[index]))
  )
    return null;
  try {
    return given.filter((_, index) => wanted[index] === "*").map(decodeURIComponent);
  } catch {
    return null;
  }
}

function showWhereWeAre(path) {
  for (const each of document.querySelectorAll("#nav a")) {
    const target = each.hash.slice(1);
    const isHere = target === "/" ? path === "/" : path === target || path.startsWith(`${target}/`);
    if (isHere) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
}

/** Announce the new view to screen readers. */
function focusHeading() {
  scrollTo(0, 0);
  main.querySelector("h1")?.focus({ preventScroll: true });
}

// Beginning ----------------------------------------------------------------------------------------------------------

function hold(isHeld) {
  page.isHeld = isHeld;
  place("hold").setAttribute("aria-pressed", String(isHeld));
  showAround();
}

place("hold").onclick = () => {
  hold(!page.isHeld);
  if (!page.isHeld) showView();
};
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault();
  main.focus();
};
addEventListener("popstate", () => showAddress());
addEventListener("hashchange", () => showAddress());
addEventListener("online", () => page.isLost && watch.open(page.view.resource));
// The age of the last numbers grows while nothing comes.
setInterval(() => page.isLost && showAround(), 1000);
showAddress();
