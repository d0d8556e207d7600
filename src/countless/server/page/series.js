// A history of limited length: dense where it is recent, sparse where it is old. The same rule as in server/http/history/history.py.

const MAX_ROWS = 320;

export class Series {
  constructor(rows = [], maxRows = MAX_ROWS) {
    this.rows = rows;
    this.maxRows = maxRows;
  }

  get last() { return this.rows.at(-1); }

  add(row) {
    this.rows.push(row);
    if (this.rows.length > this.maxRows) this.downsample();
  }

  // Keeps the newest quarter and, of the rest, the first row of each time cell. Cells of older rows are larger.
  downsample() {
    const rows = this.rows, newest = this.last[0], dense = Math.floor(rows.length * 0.75);
    let kept = rows.slice(0, dense).filter(([time], index) => {
      const cell = 2 ** Math.ceil(Math.log2(Math.max(1, newest - time) * 25 / this.maxRows));
      return !index || Math.floor(time / cell) !== Math.floor(rows[index - 1][0] / cell);
    });
    if (kept.length > this.maxRows * 0.65) kept = kept.filter((_, index) => index % 2 === 0);
    this.rows = [...kept, ...rows.slice(dense)];
  }
}
