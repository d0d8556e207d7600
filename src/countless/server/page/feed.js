// The feed: server-sent events read with fetch, because an EventSource cannot carry a token. It comes back by itself.

const FIRST_PAUSE = 500, LONGEST_PAUSE = 15000; // milliseconds between two tries

class Refused extends Error {}

// `listener` has event(name, data), live(), stale(since, reason) and refused(). Returns a function that ends it.
export function follow(path, token, listener) {
  const ending = new AbortController();
  run(path, token, listener, ending.signal).catch((error) => console.error(error));
  return () => ending.abort();
}

async function run(path, token, listener, ended) {
  let heard = Date.now(), tries = 0;
  while (!ended.aborted) {
    let reason = "";
    try {
      await listen(path, token, ended, (name, data) => {
        heard = Date.now();
        if (name === "hello") { tries = 0; listener.live(); }
        listener.event(name, data);
      });
    } catch (error) {
      if (ended.aborted) return;
      if (error instanceof Refused) return listener.refused(error.message);
      reason = error.message;
    }
    if (ended.aborted) return;
    listener.stale(heard, reason);
    const pause = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** tries++);
    await sleep(pause * (0.75 + Math.random() / 2), ended);
  }
}

async function listen(path, token, ended, deliver) {
  const silence = new AbortController();
  const signal = AbortSignal.any([ended, silence.signal]);
  let patience = 15000, timer = setTimeout(() => silence.abort(), patience);
  try {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    const response = await fetch(path, { headers, signal, cache: "no-store" });
    if (response.status === 401) throw new Refused((await response.json()).error);
    if (!response.ok) throw new Error(`the coordinator says ${response.status}`);
    for await (const [name, data] of events(response.body)) {
      if (name === "hello") patience = 3000 * data.beat;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), patience);
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

function sleep(milliseconds, ended) {
  return new Promise((done) => {
    const finish = () => { clearTimeout(timer); ended.removeEventListener("abort", finish); done(); };
    const timer = setTimeout(finish, milliseconds);
    ended.addEventListener("abort", finish);
  });
}
