// What the words of the page mean: as tooltips, and in the help.

export const WORDS = {
  rate: "Events per time, over a span that ends now and stands beside it. The busier a counter, the shorter the span.",
  figure: "What was counted in this period, with the range in which the truth is.",
  total: "All that was ever counted.",
  recent: "The last minutes, hours, days or months, one bar for each. Pale: not over yet.",
  state: "How sure the numbers are; the signs are explained in the help.",
  sites: "Processes and machines that count. A silent site has sent nothing for so long that counts may be missing.",
  messages: "Sent and received for this counter since the coordinator started.",
  alpha: "alpha: how far the answer may be from the truth, as a share of it.",
  delta: "delta: the chance that an answer is ever outside of its range.",
  scheme: "The rule by which sites decide when to report.",
  round: "The coordinator begins a new round when the total has grown: sites then report less often.",
  phase: "A part of a round, in which the thresholds of sites stay as they are.",
  windows: "Counts by minute, hour, day or month, in a time zone.",
  waiting: "Sites that have not delivered their last count of a window that is over.",
  "messages-so-far": "Since the coordinator started, with their bytes.",
  "next-day": "About so many messages in the next 24 hours, if events come at their average rate so far.",
  age: "How old an answer may be.",
  error: "How far an answer may be from the truth. Countless: never more, whatever the traffic does. Flushes: at the average rate, more in a burst.",
  doubling: "Messages until the total is twice as large.",
};
