// A past that does not grow: when it is full, every second row of the older half goes. As the server does it.

const MOST = 240;

export class Series {
  constructor(rows = [], most = MOST) {
    this.rows = rows;
    this.most = most;
  }

  get last() { return this.rows.at(-1); }

  add(row) {
    this.rows.push(row);
    if (this.rows.length <= this.most) return;
    const half = this.rows.length >> 1;
    this.rows = this.rows.filter((_, index) => index >= half || index % 2 === 0);
  }
}
