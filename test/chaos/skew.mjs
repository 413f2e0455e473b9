// Preloaded into a process of a chaos run: its wall clock is wrong by so many milliseconds for as long as it lives. What
// is measured with `performance.now()`, and every timer, goes on as it was.
const skewMs = Number(process.env.CHAOS_SKEW_MS ?? '0');
const RealDate = Date;
const realNow = RealDate.now.bind(RealDate);

globalThis.Date = class SkewedDate extends RealDate {
  constructor(...args) {
    if (args.length === 0) super(realNow() + skewMs);
    else super(...args);
  }

  static now() {
    return realNow() + skewMs;
  }
};
