// The part of MessagePack that the protocol uses: arrays, texts, integers, doubles, booleans, bytes.

export function encode(value) {
  const out = [];
  write(value, out);
  return Uint8Array.from(out);
}

function write(value, out) {
  if (Array.isArray(value)) {
    if (value.length < 16) out.push(0x90 | value.length);
    else bytes(0xdd, value.length, 4, out);
    value.forEach((item) => write(item, out));
  } else if (typeof value === "string") {
    const text = new TextEncoder().encode(value);
    if (text.length < 32) out.push(0xa0 | text.length);
    else bytes(0xda, text.length, 2, out);
    out.push(...text);
  } else if (typeof value === "boolean") {
    out.push(value ? 0xc3 : 0xc2);
  } else {
    natural(BigInt(value), out);
  }
}

function natural(n, out) {
  if (n < 0x80n) out.push(Number(n));
  else if (n < 1n << 8n) bytes(0xcc, n, 1, out);
  else if (n < 1n << 16n) bytes(0xcd, n, 2, out);
  else if (n < 1n << 32n) bytes(0xce, n, 4, out);
  else if (n < 1n << 64n) bytes(0xcf, n, 8, out);
  else {
    // Numbers have no limit in Countless: beyond 64 bits they travel as their bytes, little end first.
    const digits = [];
    for (let rest = n; rest > 0n; rest >>= 8n) digits.push(Number(rest & 255n));
    out.push(0xc4, digits.length, ...digits);
  }
}

function bytes(kind, n, size, out) {
  out.push(kind);
  for (let shift = 8n * BigInt(size - 1); shift >= 0n; shift -= 8n) out.push(Number((BigInt(n) >> shift) & 255n));
}

/** Integers come back as BigInt, doubles as numbers. */
export function decode(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let at = 0;
  const take = (size) => (at += size) - size;
  const uint = (size) => {
    let n = 0n;
    for (let i = 0; i < size; i++) n = (n << 8n) | BigInt(view.getUint8(take(1)));
    return n;
  };
  const raw = (size) => data.subarray(take(Number(size)), at);
  const text = (size) => new TextDecoder().decode(raw(size));
  const list = (size) => Array.from({ length: Number(size) }, read);
  const little = (size) => raw(size).reduceRight((n, byte) => (n << 8n) | BigInt(byte), 0n);

  function read() {
    const kind = view.getUint8(take(1));
    if (kind < 0x80) return BigInt(kind);
    if (kind >> 4 === 0x9) return list(kind & 0x0f);
    if (kind >> 5 === 0x5) return text(kind & 0x1f);
    if (kind === 0xc2 || kind === 0xc3) return kind === 0xc3;
    if (kind === 0xcb) return view.getFloat64(take(8));
    const sized = { 0xc4: [little, 1], 0xc5: [little, 2], 0xd9: [text, 1], 0xda: [text, 2], 0xdc: [list, 2], 0xdd: [list, 4] };
    if (kind in sized) return sized[kind][0](uint(sized[kind][1]));
    if (kind >= 0xcc && kind <= 0xcf) return uint(1 << (kind - 0xcc));
    throw new Error(`not a part of MessagePack that Countless uses: 0x${kind.toString(16)}`);
  }
  return read();
}
