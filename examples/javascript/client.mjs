// One process that counts, in JavaScript (Node.js 22 or newer, nothing to install):
//
//     node client.mjs http://127.0.0.1:2686 web-js < lines     # each line: a counter, and perhaps a number
//
// It counts what it reads, speaks when its paces say so, connects again when the connection breaks, and at the end of
// its input delivers the exact counts and leaves. COUNTLESS_TOKEN is used if the coordinator wants a token.

import { createInterface } from "node:readline";
import { decode, encode } from "./messagepack.mjs";
import { Site } from "./site.mjs";

const [HELLO, JOIN, LEAVE, SYNC, WELCOME, BURIED, LEFT, , AGAIN, REFUSED] = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
const VERSION = 1;

export class Client {
  constructor(url, site, token) {
    this.address = `${url.replace(/^http/, "ws")}/api/v1/site`;
    this.options = token ? { headers: { authorization: `Bearer ${token}` } } : undefined;
    this.site = site;
    this.sites = new Map();
    this.left = new Set();
    this.pause = 50;
    this.#beginLife();
    this.done = new Promise((resolve) => (this.finish = resolve));
  }

  #beginLife() {
    // Later lives have higher numbers, and nobody can guess one.
    const random = crypto.getRandomValues(new Uint32Array(1))[0] >>> 2;
    this.incarnation = (BigInt(Math.floor(Date.now() / 1000)) << 30n) | BigInt(random);
  }

  add(counter, n = 1n) {
    const known = this.sites.get(counter) ?? this.#newSite(counter);
    const due = known.add(n);
    if (this.joined?.has(counter)) this.#say(due);
    else if (this.joined) this.#say(this.#introduce(known));
  }

  #newSite(counter, count = 0n) {
    const site = new Site(counter, count);
    this.sites.set(counter, site);
    return site;
  }

  #introduce(site) {
    if (site.count === 0n) return [];
    this.joined.add(site.counter);
    return [[JOIN, site.counter, site.round, site.count], ...site.resume()];
  }

  connect() {
    this.socket = new WebSocket(this.address, this.options);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.#say([[HELLO, VERSION, this.site, this.incarnation]]);
    this.socket.onmessage = ({ data }) => decode(new Uint8Array(data)).forEach((item) => this.#hear(item));
    this.socket.onclose = () => this.#lost();
    this.socket.onerror = () => {}; // `onclose` follows
  }

  #say(items) {
    if (items.length) this.socket.send(encode(items));
  }

  #lost() {
    clearInterval(this.heartbeat);
    this.joined = undefined;
    if (this.over) return;
    setTimeout(() => this.connect(), this.pause * (0.5 + Math.random()));
    this.pause = Math.min(2 * this.pause, 15000);
  }

  #hear(item) {
    const [kind, counter] = [Number(item[0]), item[1]];
    const site = this.sites.get(counter);
    if (kind === WELCOME) this.#welcome(Number(item[2]));
    else if (kind === BURIED) this.#buried(new Map(item[1]));
    else if (kind === LEFT) this.#hasLeft(counter);
    else if (kind === AGAIN) this.#again(counter, item[2]);
    else if (kind === REFUSED) console.error(`${counter} is not taken in: ${item[2]}`);
    else if (site && kind < HELLO) this.#say(site.receive(item));
  }

  #welcome(heartbeat) {
    this.pause = 50;
    this.joined = new Set();
    this.heartbeat = setInterval(() => this.#say([[SYNC, 0n]]), heartbeat);
    this.#say([...this.sites.values()].flatMap((site) => this.#introduce(site)));
    if (this.leaving) this.#lastWords();
  }

  /** This life was given up while we were away: another one begins with what the coordinator does not know. */
  #buried(known) {
    this.#beginLife();
    for (const [counter, site] of this.sites) this.#newSite(counter, site.count - (known.get(counter) ?? 0n));
    this.socket.close();
  }

  #again(counter, keep) {
    const site = this.#newSite(counter, keep ? (this.sites.get(counter)?.count ?? 0n) : 0n);
    this.joined.delete(counter);
    this.#say(this.#introduce(site));
  }

  /** Deliver the exact counts and go; the promise is kept when the coordinator has them on its disk. */
  leave() {
    this.leaving = true;
    if (this.joined) this.#lastWords();
    return this.done;
  }

  #lastWords() {
    for (const { counter, round, count } of this.sites.values()) {
      if (count === 0n) this.left.add(counter);
      else if (!this.left.has(counter)) this.#say([[LEAVE, counter, round, count]]);
    }
    this.#hasLeft();
  }

  #hasLeft(counter) {
    if (counter) this.left.add(counter);
    if (this.left.size < this.sites.size) return;
    this.over = true;
    this.socket.close();
    this.finish();
  }
}

if (import.meta.url === `file://${process.argv[1]}`) {
  const client = new Client(process.argv[2], process.argv[3], process.env.COUNTLESS_TOKEN);
  client.connect();
  for await (const line of createInterface({ input: process.stdin })) {
    const [counter, n = "1"] = line.trim().split(/\s+/);
    if (counter) client.add(counter, BigInt(n));
  }
  await client.leave();
}
