// The feed: server-sent events read with fetch, because an EventSource cannot send a token. Reconnects by itself.

const MIN_RETRY_MS = 500, MAX_RETRY_MS = 15000;
const FIRST_TIMEOUT_MS = 15000, KEEPALIVES_PER_TIMEOUT = 3;

class Unauthorized extends Error {}

// `listener` has event(name, data), live(), stale(since, reason) and unauthorized(). Returns a function that stops the feed.
export function follow(path, token, listener) {
  const stopping = new AbortController();
  run(path, token, listener, stopping.signal).catch((error) => console.error(error));
  return () => stopping.abort();
}

async function run(path, token, listener, stopped) {
  let lastEventAt = Date.now(), failures = 0;
  while (!stopped.aborted) {
    let reason = "";
    try {
      await readStream(path, token, stopped, (name, data) => {
        lastEventAt = Date.now();
        if (name === "hello") { failures = 0; listener.live(); }
        listener.event(name, data);
      });
    } catch (error) {
      if (stopped.aborted) return;
      if (error instanceof Unauthorized) return listener.unauthorized();
      reason = error.message;
    }
    if (stopped.aborted) return;
    listener.stale(lastEventAt, reason);
    const pause = Math.min(MAX_RETRY_MS, MIN_RETRY_MS * 2 ** failures++);
    await sleep(pause * (0.75 + Math.random() / 2), stopped);
  }
}

// Ends when the server closes the stream; throws when it cannot be read or nothing arrives in time.
async function readStream(path, token, stopped, deliver) {
  const timeout = new AbortController();
  const signal = AbortSignal.any([stopped, timeout.signal]);
  let timeoutMs = FIRST_TIMEOUT_MS, timer = setTimeout(() => timeout.abort(), timeoutMs);
  try {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    const response = await fetch(path, { headers, signal, cache: "no-store" });
    if (response.status === 401) throw new Unauthorized();
    if (!response.ok) throw new Error(`the coordinator answered with status ${response.status}`);
    for await (const [name, data] of events(response.body)) {
      if (name === "hello") timeoutMs = KEEPALIVES_PER_TIMEOUT * 1000 * data.keepalive_s;
      clearTimeout(timer);
      timer = setTimeout(() => timeout.abort(), timeoutMs);
      deliver(name, data);
    }
  } finally {
    clearTimeout(timer);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const name = block.match(/^event: (.*)$/m), data = block.match(/^data: (.*)$/m);
        if (name && data) yield [name[1], JSON.parse(data[1])];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function sleep(milliseconds, stopped) {
  return new Promise((resolve) => {
    const finish = () => { clearTimeout(timer); stopped.removeEventListener("abort", finish); resolve(); };
    const timer = setTimeout(finish, milliseconds);
    stopped.addEventListener("abort", finish);
  });
}
