// A site of Countless: a cumulative count, a pace, and the next count at which to speak. Counts are BigInt.
//
// A site does not know which scheme it serves. It answers two words of the coordinator (StartRound, Repace) with two of
// its own (Snapshot, Report), and everything it says is cumulative: saying it twice, or late, does no harm.

export const [REPORT, SNAPSHOT, START_ROUND, REPACE] = [0, 1, 2, 3];
const [EVERY, GROWTH, SAMPLED, BLOCKS, LATTICE] = [0n, 1n, 2n, 3n, 4n];

/** Uniform on 0n .. n-1n, from the system's randomness. */
function below(n) {
  const words = new BigUint64Array(2);
  crypto.getRandomValues(words);
  return ((words[0] << 64n) | words[1]) % n; // the bias is below n / 2^128
}

/** How many coins with probability 1/step are flipped up to the first head. */
function gap(step) {
  if (step === 1n) return 1n;
  const uniform = Number(below(1n << 53n)) / 2 ** 53;
  return 1n + BigInt(Math.floor(Math.log(1 - uniform) / Math.log1p(-1 / Number(step))));
}

/** The decimal that was written, as a fraction: both ends of the wire must agree for ever. */
function ratio(decimal) {
  const [mantissa, exponent = "0"] = String(decimal).split("e");
  const [whole, part = ""] = mantissa.split(".");
  const scale = part.length - Number(exponent);
  return [BigInt(whole + part), 10n ** BigInt(scale)];
}

const modulo = (n, step) => ((n % step) + step) % step;

/** The first point of a pace after `count`: {next, last, crossings, block}. */
function first([kind, ...numbers], count) {
  const cue = { last: count, crossings: 0n, block: count };
  if (kind === GROWTH) return { ...cue, next: reach(numbers[0], count) + 1n };
  const [step, offset = 0n] = numbers;
  if (kind === SAMPLED) return { ...cue, next: count + gap(step) };
  if (kind === BLOCKS) return { ...cue, next: count + 1n + below(step) };
  if (kind === EVERY || kind === LATTICE) return { ...cue, next: count - modulo(count - offset, step) + step };
  throw new Error(`a pace of kind ${kind}: this site is too old for its coordinator`);
}

/** `count` has reached the next point, perhaps far beyond it: how many were passed, which was last, where is the next. */
function after(pace, count, cue) {
  const [kind, step, offset = 0n] = pace;
  if (kind === GROWTH) return { next: reach(step, count) + 1n, last: count, crossings: 1n };
  if (kind === EVERY || kind === LATTICE) {
    const last = count - modulo(count - offset, step);
    return { next: last + step, last, crossings: (last - cue.next) / step + 1n };
  }
  let { next, last, block } = cue;
  let crossings = 0n;
  while (next <= count) {
    crossings += 1n;
    last = next;
    block += step;
    next = kind === SAMPLED ? next + gap(step) : block + 1n + below(step);
  }
  return { next, last, crossings, block };
}

/** The largest count that a report of `count` can stand for: floor(count (1+alpha)/(1-alpha)). */
function reach(alpha, count) {
  const [part, whole] = ratio(alpha);
  return (count * (whole + part)) / (whole - part);
}

const same = (a, b) => a.length === b.length && a.every((item, i) => item === b[i]);

export class Site {
  constructor(counter, count = 0n) {
    Object.assign(this, { counter, count, round: 0n, crossings: 0n });
    this.#adopt([EVERY, 1n], count);
  }

  #adopt(pace, since) {
    this.pace = pace;
    this.adopted = since;
    this.cue = first(pace, since);
  }

  /** `n` more events have happened here; what to say, if anything. */
  add(n = 1n) {
    this.count += n;
    if (this.count < this.cue.next) return [];
    this.cue = after(this.pace, this.count, this.cue);
    this.crossings += this.cue.crossings;
    return [this.#report()];
  }

  #report() {
    return [REPORT, this.counter, this.round, this.cue.last, this.crossings];
  }

  /** The coordinator spoke. */
  receive([kind, , round, pace, since]) {
    if (Number(kind) === START_ROUND) {
      if (round < this.round) return [];
      if (round === this.round) return this.resume();
      this.#enter(round);
      this.#adopt(pace, this.count);
      return [[SNAPSHOT, this.counter, this.round, this.count]];
    }
    const repeated = round === this.round && since === this.adopted && same(pace, this.pace);
    if (round < this.round || (round === this.round && since < this.adopted) || repeated) return [];
    this.#enter(round);
    this.#adopt(pace, since);
    return this.add(0n);
  }

  #enter(round) {
    if (round > this.round) [this.round, this.crossings] = [round, 0n];
  }

  /** All that the coordinator may have missed. */
  resume() {
    return [[SNAPSHOT, this.counter, this.round, this.adopted], this.#report()];
  }
}
