// One process that counts, in JavaScript (Node.js 22 or newer, nothing to install):
//
//     node client.mjs http://127.0.0.1:2686 web-js < lines     # each line: a counter, and perhaps a number
//
// It counts what it reads, reports when its triggers are due, reconnects when the connection is lost, and at the end of
// its input delivers the exact counts and leaves. COUNTLESS_TOKEN is used if the coordinator requires a token.

import { createInterface } from "node:readline";
import { decode, encode } from "./messagepack.mjs";
import { Site } from "./site.mjs";

const [HELLO, JOIN, LEAVE, SYNC] = [4, 5, 6, 7];
const [HELLO_ACK, INCARNATION_RETIRED, LEAVE_ACK, , REJOIN, COUNTER_REJECTED] = [8, 9, 10, 11, 12, 13];
const VERSION = 4;

export class Client {
  constructor(url, site, token) {
    this.address = `${url.replace(/^http/, "ws")}/api/v1/site`;
    this.options = token ? { headers: { authorization: `Bearer ${token}` } } : undefined;
    this.site = site;
    this.sites = new Map();
    this.left = new Set();
    this.pause = 50;
    this.#newIncarnation();
    this.done = new Promise((resolve) => (this.finish = resolve));
  }

  #newIncarnation() {
    // Grows from day to day, and cannot be guessed: a random second of the next 18 hours, and 30 random bits.
    const [random, later] = crypto.getRandomValues(new Uint32Array(2));
    const second = Math.floor(Date.now() / 1000) + (later >>> 16);
    this.incarnation = (BigInt(second) << 30n) | BigInt(random >>> 2);
  }

  add(counter, n = 1n) {
    const known = this.sites.get(counter) ?? this.#newSite(counter);
    const due = known.add(n);
    if (this.joined?.has(counter)) this.#send(due);
    else if (this.joined) this.#send(this.#joinItems(known));
  }

  #newSite(counter, count = 0n) {
    const site = new Site(counter, count);
    this.sites.set(counter, site);
    return site;
  }

  #joinItems(site) {
    if (site.count === 0n) return [];
    this.joined.add(site.counter);
    return [[JOIN, site.counter, site.round, site.count], ...site.resend()];
  }

  connect() {
    const socket = new WebSocket(this.address, this.options);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#send([[HELLO, VERSION, this.site, this.incarnation]]);
    socket.onmessage = ({ data }) => decode(new Uint8Array(data)).forEach((item) => this.#onItem(item));
    // After a connection that failed Node.js 22 calls only the second.
    socket.onclose = socket.onerror = () => socket === this.socket && this.#onClose();
  }

  #send(items) {
    if (items.length) this.socket.send(encode(items));
  }

  #onClose() {
    this.socket = undefined;
    clearInterval(this.heartbeat);
    this.joined = undefined;
    if (this.ended) return;
    setTimeout(() => this.connect(), this.pause * (0.5 + Math.random()));
    this.pause = Math.min(2 * this.pause, 15000);
  }

  #onItem(item) {
    const [kind, counter] = [Number(item[0]), item[1]];
    const site = this.sites.get(counter);
    if (kind === HELLO_ACK) this.#onHelloAck(Number(item[2]));
    else if (kind === INCARNATION_RETIRED) this.#onRetired(new Map(item[1]));
    else if (kind === LEAVE_ACK) this.#onLeft(counter);
    else if (kind === REJOIN) this.#onRejoin(counter);
    else if (kind === COUNTER_REJECTED) console.error(`counter ${counter} rejected: ${item[2]}`);
    else if (site && kind < HELLO) this.#send(site.receive(item));
  }

  #onHelloAck(heartbeat) {
    this.pause = 50;
    this.joined = new Set();
    this.heartbeat = setInterval(() => this.#send([[SYNC, 0n]]), heartbeat);
    this.#send([...this.sites.values()].flatMap((site) => this.#joinItems(site)));
    if (this.leaving) this.#sendLeave();
  }

  /** Timed out while disconnected: continue as a new incarnation with the events that the coordinator does not know. */
  #onRetired(known) {
    this.#newIncarnation();
    for (const [counter, site] of this.sites) this.#newSite(counter, site.count - (known.get(counter) ?? 0n));
    this.socket.close();
  }

  #onRejoin(counter) {
    const site = this.#newSite(counter, 0n);
    this.joined.delete(counter);
    this.#send(this.#joinItems(site));
  }

  /** Deliver the exact counts and disconnect; resolves when they are on the coordinator's disk. */
  leave() {
    this.leaving = true;
    if (this.joined) this.#sendLeave();
    return this.done;
  }

  #sendLeave() {
    for (const { counter, round, count } of this.sites.values()) {
      if (count === 0n) this.left.add(counter);
      else if (!this.left.has(counter)) this.#send([[LEAVE, counter, round, count]]);
    }
    this.#onLeft();
  }

  #onLeft(counter) {
    if (counter) this.left.add(counter);
    if (this.left.size < this.sites.size) return;
    this.ended = true;
    this.socket.close();
    this.finish();
  }
}

if (import.meta.url === `file://${process.argv[1]}`) {
  if (typeof WebSocket === "undefined") {
    console.error(`client.mjs needs Node.js 22 or newer, for its WebSocket; this is Node.js ${process.version}`);
    process.exit(2);
  }
  const client = new Client(process.argv[2], process.argv[3], process.env.COUNTLESS_TOKEN);
  client.connect();
  for await (const line of createInterface({ input: process.stdin })) {
    const [counter, n = "1"] = line.trim().split(/\s+/);
    if (counter) client.add(counter, BigInt(n));
  }
  await client.leave();
}
