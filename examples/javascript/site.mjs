// A site of Countless: a cumulative count, a trigger, and the next count at which to report. Counts are BigInt.
//
// A site does not know which scheme it serves. It replies to two messages of the coordinator (StartRound, SetTrigger)
// with two of its own (Snapshot, Report). Every message is cumulative: a repeated or late one is harmless.

export const [REPORT, SNAPSHOT, START_ROUND, SET_TRIGGER] = [0, 1, 2, 3];
const [EVERY_NTH, GEOMETRIC_GROWTH, BERNOULLI_SAMPLING, ONCE_PER_BLOCK, OFFSET_MULTIPLE] = [0n, 1n, 2n, 3n, 4n];

/** Uniform on 0n .. n-1n, from the system's randomness. */
function randomBelow(n) {
  const words = new BigUint64Array(2);
  crypto.getRandomValues(words);
  return ((words[0] << 64n) | words[1]) % n; // the bias is below n / 2^128
}

/** A geometric random number: trials with probability 1/step up to the first success. */
function geometric(step) {
  if (step === 1n) return 1n;
  const uniform = Number(randomBelow(1n << 53n)) / 2 ** 53;
  return 1n + BigInt(Math.floor(Math.log(1 - uniform) / Math.log1p(-1 / Number(step))));
}

/** The decimal that was written, as a fraction: both ends of the wire must compute the same points. */
function ratio(decimal) {
  const [mantissa, exponent = "0"] = String(decimal).split("e");
  const [whole, part = ""] = mantissa.split(".");
  const scale = part.length - Number(exponent);
  return [BigInt(whole + part), 10n ** BigInt(scale)];
}

const modulo = (n, step) => ((n % step) + step) % step;

/** The first point of a trigger after `count`: {next, last, crossings, block}. */
function start([kind, ...numbers], count) {
  const state = { last: count, crossings: 0n, block: count };
  if (kind === GEOMETRIC_GROWTH) return { ...state, next: nextReport(numbers, count) };
  const [step, offset = 0n] = numbers;
  if (kind === BERNOULLI_SAMPLING) return { ...state, next: count + geometric(step) };
  if (kind === ONCE_PER_BLOCK) return { ...state, next: count + 1n + randomBelow(step) };
  if (kind === EVERY_NTH || kind === OFFSET_MULTIPLE) {
    return { ...state, next: count - modulo(count - offset, step) + step };
  }
  throw new Error(`a trigger of kind ${kind}: this site is too old for its coordinator`);
}

/** `count` has reached the next point, perhaps far beyond it: how many were passed, which was last, where is the next. */
function advance(trigger, count, state) {
  const [kind, step, offset = 0n] = trigger;
  if (kind === GEOMETRIC_GROWTH) return { next: nextReport(trigger.slice(1), count), last: count, crossings: 1n };
  if (kind === EVERY_NTH || kind === OFFSET_MULTIPLE) {
    const last = count - modulo(count - offset, step);
    return { next: last + step, last, crossings: (last - state.next) / step + 1n };
  }
  let { next, last, block } = state;
  let crossings = 0n;
  while (next <= count) {
    crossings += 1n;
    last = next;
    block += step;
    next = kind === BERNOULLI_SAMPLING ? next + geometric(step) : block + 1n + randomBelow(step);
  }
  return { next, last, crossings, block };
}

const MARKS = [2n, 3n, 4n, 6n, 9n, 13n]; // one for each bit of a phase

/** The next point of GeometricGrowth after a report of `count`; one event earlier where the phase says so. */
function nextReport([alpha, extra = 0n, phase = 0n], count) {
  const [part, whole] = ratio(alpha);
  const gapAt = (n) => (n * (whole + part)) / (whole - part) + extra + 1n - n;
  const gap = gapAt(count);
  if (gap > 20n) return count + gap;
  const bit = MARKS.filter((mark) => mark <= gap).length - 1;
  const earlier = count + 1n - gap;
  const moved = bit >= 0 && (phase >> BigInt(bit)) & 1n && gapAt(earlier < 0n ? 0n : earlier) < MARKS[bit];
  return count + gap - (moved ? 1n : 0n);
}

const same = (a, b) => a.length === b.length && a.every((item, i) => item === b[i]);

export class Site {
  constructor(counter, count = 0n) {
    Object.assign(this, { counter, count, round: 0n, crossings: 0n });
    this.#adopt([EVERY_NTH, 1n], count);
  }

  #adopt(trigger, fromCount) {
    this.trigger = trigger;
    this.adopted = fromCount;
    this.state = start(trigger, fromCount);
  }

  /** Count `n` more events; the messages that are due. */
  add(n = 1n) {
    this.count += n;
    if (this.count < this.state.next) return [];
    this.state = advance(this.trigger, this.count, this.state);
    this.crossings += this.state.crossings;
    return [this.#report()];
  }

  #report() {
    return [REPORT, this.counter, this.round, this.state.last, this.crossings];
  }

  /** Apply a message of the coordinator; the replies. */
  receive([kind, , round, trigger, fromCount]) {
    if (Number(kind) === START_ROUND) {
      if (round < this.round) return [];
      if (round === this.round) return this.resend();
      this.#enterRound(round);
      this.#adopt(trigger, this.count);
      return [[SNAPSHOT, this.counter, this.round, this.count]];
    }
    const repeated = round === this.round && fromCount === this.adopted && same(trigger, this.trigger);
    if (round < this.round || (round === this.round && fromCount < this.adopted) || repeated) return [];
    this.#enterRound(round);
    this.#adopt(trigger, fromCount);
    return this.add(0n);
  }

  #enterRound(round) {
    if (round > this.round) [this.round, this.crossings] = [round, 0n];
  }

  /** Every message that the coordinator may have missed. */
  resend() {
    return [[SNAPSHOT, this.counter, this.round, this.adopted], this.#report()];
  }
}
