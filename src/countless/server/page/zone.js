// Times by the clocks of a time zone: windows and days begin by them, wherever the browser is.

const known = new Map();

export function zone(tz) {
  if (!known.has(tz)) known.set(tz, formats(tz));
  return known.get(tz);
}

function formats(tz) {
  const format = (options) => {
    try { return new Intl.DateTimeFormat("en-GB", { timeZone: tz, ...options }); } catch { return new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options }); }
  };
  const clock = format({ hour: "2-digit", minute: "2-digit" }), precise = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" }), date = format({ weekday: "short", day: "numeric", month: "short" });
  const day = format({ day: "numeric", month: "short" }), month = format({ month: "long", year: "numeric" }), short = format({ month: "short", year: "2-digit" });
  const show = (formatter) => (seconds) => formatter.format(new Date(seconds * 1000));
  const zone = { name: format({}).resolvedOptions().timeZone, minutes: show(clock), date: show(date), day: show(day), month: show(month), monthShort: show(short) };
  // 14:05, and 14:05:42 where the seconds matter: what is counted since then is not all of that minute.
  zone.clock = (seconds) => show(Math.floor(seconds) % 60 ? precise : clock)(seconds);
  // The time today, and with the date of any other day.
  const withDate = (time) => (seconds, now) => (zone.date(seconds) === zone.date(now) ? time(seconds) : `${zone.date(seconds)}, ${zone.minutes(seconds)}`);
  zone.moment = withDate(zone.clock);
  zone.minute = withDate(zone.minutes); // where there is little room
  return zone;
}
