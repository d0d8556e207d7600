// A past that does not grow: dense where it is recent, coarse where it is old. As the server does it.

const MOST = 320;

export class Series {
  constructor(rows = [], most = MOST) {
    this.rows = rows;
    this.most = most;
  }

  get last() { return this.rows.at(-1); }

  add(row) {
    this.rows.push(row);
    if (this.rows.length > this.most) this.thin();
  }

  // The newest quarter stays; of the rest, the first row of each cell of time. Old rows have large cells.
  thin() {
    const rows = this.rows, newest = this.last[0], dense = Math.floor(rows.length * 0.75);
    let kept = rows.slice(0, dense).filter(([time], index) => {
      const cell = 2 ** Math.ceil(Math.log2(Math.max(1, newest - time) * 25 / this.most));
      return !index || Math.floor(time / cell) !== Math.floor(rows[index - 1][0] / cell);
    });
    if (kept.length > this.most * 0.65) kept = kept.filter((_, index) => index % 2 === 0);
    this.rows = [...kept, ...rows.slice(dense)];
  }
}
