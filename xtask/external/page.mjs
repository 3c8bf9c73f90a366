// The status page in a headless Chromium, over a gateway with a token and traffic, and over one that
// is open and idle. Pictures of it are left in WORK/page, to be looked at.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { Browser, until } from "./browser.mjs";

const { BASE_URL, IDLE_URL, MODEL, ADMIN_URL, IDLE_ADMIN_URL, READ_TOKEN, WORK } = process.env;
const pictures = join(WORK, "page");
mkdirSync(pictures, { recursive: true });
const browser = await Browser.start("chromium", WORK);
const STRANGE = "<img src=x onerror=alert(1)>";

async function traffic(count, url = BASE_URL, streams = (n) => n % 2 === 0) {
  const said = "The archive keeps every letter in the order in which it came. ".repeat(30);
  for (let n = 0; n < count; n += 1) {
    const messages = [{ role: "system", content: `${n % 3} ${said}` }, { role: "user", content: `Question ${n}?` }];
    const body = JSON.stringify({ model: MODEL, messages, max_tokens: 16, stream: streams(n) });
    const headers = { "content-type": "application/json", "x-request-id": `page-${n}` };
    const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    assert.equal(answer.status, 200, await answer.text());
  }
}

const visible = (id) => browser.run(`!document.getElementById("${id}").hidden`);
const focused = () => browser.run(`(() => {
  const at = document.activeElement;
  const outline = getComputedStyle(at).outlineStyle;
  return { what: at.id || at.className || at.tagName, text: at.innerText ?? "", outline };
})()`);
/** What went wrong since this was asked last, but for what a check brought about itself. */
function noFaults(when, allowed = /^$/) {
  const faults = browser.faults.splice(0).filter((fault) => !allowed.test(fault));
  assert.deepEqual(faults, [], when);
}

/** The contrast of every text with what is behind it, where it is too low. */
const faint = () => browser.run(`(() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest(".unseen, .skip, noscript")) continue;
    const svg = node.closest("svg");
    const [one, other] = [light(parse(svg ? getComputedStyle(node).fill : getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.push(walker.currentNode.data.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return found;
})()`);

async function asksForTheToken() {
  await browser.size(1280);
  await browser.prefers("light");
  await browser.open(`${ADMIN_URL}/`);
  await until("the form for the token", () => visible("sign-in"));
  assert.equal(await visible("content"), false);
  assert.equal((await focused()).what, "token");
  await browser.picture(join(pictures, "token.png"));
  await browser.type("not-the-token");
  await browser.press("Enter");
  await browser.has("The gateway refused the token");
  assert.equal(await browser.run("sessionStorage.length"), 0);
  assert.equal(await visible("content"), false);
  await browser.type(READ_TOKEN);
  await browser.press("Enter");
  await until("the status", () => visible("content"));
  assert.equal(await visible("sign-in"), false);
  assert.equal(await browser.run("sessionStorage.getItem('kvasir-token')"), READ_TOKEN);
  assert.equal(await browser.run("localStorage.length + document.cookie.length"), 0);
  assert(!browser.requests.some(({ url }) => url.includes(READ_TOKEN)), "no address has the token");
  // It is asked for without one first, and with the wrong one.
  noFaults("at the token", /status of 401/);
}

async function showsWhatThereIs() {
  await until("all endpoints", () => browser.run("document.querySelectorAll('#fleet tbody tr').length === 4"));
  for (const text of ["3 of 4", MODEL, "policy latency", "exact", "the engine publishes no events", "does not serve this model"]) await browser.has(text);
  // A problem: what is wrong, where, and what to do.
  for (const text of ["No events", "cause no_events", "What to do: Start the engine with KV events"]) await browser.has(text);
  await until("decisions", () => browser.run("document.querySelectorAll('#decisions tbody tr').length >= 20"));
  await until("a hit that is explained", () => browser.run("/holds? (part|the longest part) of the prompt.*of .* tokens/.test(document.getElementById('decisions').innerText)"));
  // Names from outside are text: one of the pools is called so.
  await browser.has(STRANGE);
  assert.equal(await browser.run("document.querySelectorAll('img').length"), 0);
  await browser.run("document.querySelector('#decisions details').open = true");
  await browser.has("page-29");
  // What is unfolded stays so over the next answers.
  const before = await browser.run("document.getElementById('pulse').textContent");
  await traffic(1);
  await until("a further answer", async () => (await browser.run("document.getElementById('pulse').textContent")) !== before);
  assert.equal(await browser.run("document.querySelectorAll('#decisions details[open]').length"), 1);
  // Everybody's headings, and tables that are told apart.
  const headings = await browser.run("[...document.querySelectorAll('h1, h2, h3')].filter((h) => h.checkVisibility()).map((h) => h.tagName).join('')");
  assert.match(headings, /^H1(H2(H3)*)+$/);
  assert(await browser.run("[...document.querySelectorAll('table')].every((t) => t.caption?.textContent)"));
  assert(await browser.run("[...document.querySelectorAll('th')].every((th) => th.scope)"));
  noFaults("with everything shown");
}

async function showsOnePool() {
  const choose = (model) => browser.run(`(() => {
    const select = document.getElementById("pool");
    select.value = ${JSON.stringify(model)};
    select.dispatchEvent(new Event("change"));
  })()`);
  await choose(STRANGE);
  await browser.has("No request was decided about yet");
  await choose("");
  await until("all decisions", () => browser.run("document.querySelectorAll('#decisions tbody tr').length >= 20"));
  noFaults("with one pool");
}

async function fitsEverywhere() {
  // Some steps of ten seconds, so that there are lines.
  for (let n = 0; n < 3; n += 1) {
    await new Promise((done) => setTimeout(done, 8000));
    await traffic(6);
  }
  await until("lines", () => browser.run("document.querySelectorAll('path.first').length === 3"));
  for (const scheme of ["light", "dark"]) {
    await browser.prefers(scheme, scheme === "dark" ? "reduce" : "no-preference");
    for (const width of [320, 768, 1280]) {
      await browser.size(width);
      // Lines are drawn anew with the next frame.
      await browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
      const unfold = (open) => browser.run(`document.querySelectorAll("details").forEach((one) => { one.open = ${open}; })`);
      await unfold(true);
      await until("the values", () => browser.run("document.querySelector('#values tbody tr') !== null"));
      const wide = await browser.run("document.documentElement.scrollWidth");
      assert(wide <= width, `${scheme} ${width}: ${wide} wide`);
      assert.deepEqual(await faint(), [], `${scheme} ${width}`);
      const small = await browser.run("[...document.querySelectorAll('button')].filter((b) => b.checkVisibility() && b.offsetHeight < 24).length");
      assert.equal(small, 0);
      await unfold(false);
      await browser.picture(join(pictures, `${scheme}-${width}.png`));
    }
  }
  const ground = () => browser.run("getComputedStyle(document.body).backgroundColor");
  const dark = await ground();
  await browser.prefers("light");
  assert.notEqual(await ground(), dark);
  noFaults("at any size");
}

async function goesByKeyboard() {
  await browser.run("document.activeElement.blur(); scrollTo(0, 0)");
  await browser.open(`${ADMIN_URL}/`);
  await until("the status", () => visible("content"));
  const order = [];
  for (let n = 0; n < 5; n += 1) {
    await browser.press("Tab");
    const at = await focused();
    assert.notEqual(at.outline, "none", `${at.what} has no visible focus`);
    order.push(at.what);
  }
  assert.deepEqual(order, ["skip", "pause", "forget", "pool", "SUMMARY"]);
  await browser.run("document.querySelector('.skip').focus()");
  await browser.press("Enter");
  assert.equal((await focused()).what, "main");
  // Paused, nothing is asked.
  await browser.run("document.getElementById('pause').focus()");
  await browser.press("Enter");
  await browser.has("Paused at");
  const asked = browser.requests.length;
  await new Promise((done) => setTimeout(done, 6000));
  assert.equal(browser.requests.length, asked, "paused, and asks");
  await browser.press("Enter");
  await browser.has("Live, read at");
  noFaults("by keyboard");
}

async function restsWhileNobodyLooks() {
  const hide = (hidden) => browser.run(`(() => {
    Object.defineProperty(document, "hidden", { value: ${hidden}, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  })()`);
  await hide(true);
  const asked = browser.requests.length;
  await new Promise((done) => setTimeout(done, 6000));
  assert.equal(browser.requests.length, asked, "hidden, and asks");
  await hide(false);
  await until("a question at once", async () => browser.requests.length > asked);
}

async function saysWhenTheGatewayIsAway() {
  await browser.has("Live, read at");
  await browser.offline(true);
  await browser.has("The gateway cannot be reached");
  await browser.has("Next try in 10 s");
  assert(await browser.run("document.getElementById('content').classList.contains('stale')"));
  await browser.picture(join(pictures, "away.png"));
  await browser.offline(false);
  await browser.run("document.getElementById('retry').click()");
  await browser.has("Live, read at");
  assert.equal(await visible("notice"), false);
  noFaults("while it was away", /ERR_INTERNET_DISCONNECTED/);
}

async function forgetsTheToken() {
  await browser.run("document.getElementById('forget').click()");
  await until("the form again", async () => (await visible("sign-in").catch(() => false)));
  assert.equal(await browser.run("sessionStorage.length"), 0);
  assert(!(await browser.run("document.body.textContent")).includes(MODEL), "what was read is gone");
  noFaults("without the token", /status of 401/);
}

async function saysWhatToDoWhereThereIsNothing() {
  await browser.size(1280);
  await browser.open(`${IDLE_ADMIN_URL}/`);
  await until("the status without a token", () => visible("content"));
  await browser.has("No request was decided about yet");
  await browser.has("No request ended in the last half hour");
  assert.equal(await visible("forget"), false);
  await browser.picture(join(pictures, "idle.png"));
  assert.deepEqual(await faint(), []);
  noFaults("at an idle gateway");
}

async function saysWhyNothingIsReported() {
  await traffic(4, IDLE_URL, () => true);
  await browser.has("Of all prompts: no answer reported it");
  await browser.has("predicted; none reported");
  noFaults("without reports");
}

try {
  await traffic(30);
  for (const check of [
    asksForTheToken, showsWhatThereIs, showsOnePool, fitsEverywhere, goesByKeyboard, restsWhileNobodyLooks,
    saysWhenTheGatewayIsAway, forgetsTheToken, saysWhatToDoWhereThereIsNothing,
    saysWhyNothingIsReported,
  ]) {
    console.log(check.name);
    await check();
  }
} finally {
  await browser.stop();
}
