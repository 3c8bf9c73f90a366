// A headless Chromium, driven over a pipe: no package is needed for it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const PATIENCE_MS = 30000;

/** Waits until something is so; what it is then. */
export async function until(what, probe) {
  const end = Date.now() + PATIENCE_MS;
  let last;
  while (Date.now() < end) {
    last = await probe();
    if (last) return last;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`${what} does not come to be (${JSON.stringify(last)})`);
}

/** A browser with one page. What goes wrong in the page is collected in `faults`. */
export class Browser {
  #child;
  #home;
  #session;
  #number = 0;
  #waiting = new Map();
  #rest = "";
  faults = [];
  requests = [];

  static async start(program, work) {
    const browser = new Browser();
    browser.#home = mkdtempSync(join(work, "chromium-"));
    const args = [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe",
      `--user-data-dir=${browser.#home}`, "about:blank",
    ];
    browser.#child = spawn(program, args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.#child.on("error", (error) => { throw error; });
    browser.#child.stdio[4].setEncoding("utf8").on("data", (text) => browser.#read(text));
    const { targetInfos } = await browser.#send("Target.getTargets", {}, null);
    const { targetId } = targetInfos.find((target) => target.type === "page");
    const { sessionId } = await browser.#send("Target.attachToTarget", { targetId, flatten: true }, null);
    browser.#session = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.send(`${domain}.enable`);
    await browser.send("Emulation.setFocusEmulationEnabled", { enabled: true });
    return browser;
  }

  async stop() {
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
    rmSync(this.#home, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  #read(text) {
    const parts = (this.#rest + text).split("\0");
    this.#rest = parts.pop();
    for (const part of parts) this.#hear(JSON.parse(part));
  }

  #hear({ id, result, error, method, params }) {
    if (id !== undefined) {
      const { done, fail } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) fail(new Error(error.message));
      else done(result);
    } else if (method === "Runtime.exceptionThrown") {
      this.faults.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      this.faults.push(params.args.map((arg) => arg.value ?? arg.description).join(" "));
    } else if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) {
      this.faults.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    } else if (method === "Network.requestWillBeSent") {
      this.requests.push({ url: params.request.url, headers: params.request.headers });
    }
  }

  #send(method, params, sessionId) {
    this.#number += 1;
    const id = this.#number;
    const told = sessionId === null ? { id, method, params } : { id, method, params, sessionId };
    this.#child.stdio[3].write(`${JSON.stringify(told)}\0`);
    return new Promise((done, fail) => this.#waiting.set(id, { done, fail }));
  }

  send(method, params = {}) {
    return this.#send(method, params, this.#session);
  }

  async open(url) {
    await this.send("Page.navigate", { url });
    await until(`${url} is loaded`, () => this.run("document.readyState === 'complete' && location.href !== 'about:blank'"));
  }

  /** The value of an expression in the page. */
  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** The text of the page as a reader sees it. */
  text() {
    return this.run("document.body.innerText");
  }

  async has(text) {
    await until(`“${text}” in the page`, async () => (await this.text()).includes(text));
  }

  async size(width, height = 900) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  }

  async prefers(scheme, motion = "no-preference") {
    const features = [
      { name: "prefers-color-scheme", value: scheme },
      { name: "prefers-reduced-motion", value: motion },
    ];
    await this.send("Emulation.setEmulatedMedia", { features });
  }

  async offline(offline) {
    await this.send("Network.emulateNetworkConditions", { offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  }

  async press(key, modifiers = 0) {
    const codes = { Tab: 9, Enter: 13 };
    const text = key === "Enter" ? "\r" : undefined;
    const common = { key, code: key, windowsVirtualKeyCode: codes[key], modifiers, text };
    await this.send("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", ...common });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...common });
  }

  async type(text) {
    await this.send("Input.insertText", { text });
  }

  async picture(file) {
    const { data } = await this.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip: await this.#whole() });
    writeFileSync(file, Buffer.from(data, "base64"));
  }

  async #whole() {
    const { cssContentSize } = await this.send("Page.getLayoutMetrics");
    return { x: 0, y: 0, width: cssContentSize.width, height: Math.min(cssContentSize.height, 6000), scale: 1 };
  }
}
