// Tests of rpcmq.js that run in Node and in a browser alike: `run(module, options)` gives a line for each.

class Failed extends Error {}

function same(found, wanted, path = "") {
  const shown = (value) => JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `${v}n` : v));
  const differ = () => { throw new Failed(`${path || "value"}: ${shown(found)} is not ${shown(wanted)}`); };
  if (Object.is(found, wanted)) return;
  if (typeof found !== "object" || typeof wanted !== "object" || found === null || wanted === null) differ();
  if (wanted instanceof Date) return found instanceof Date && found.getTime() === wanted.getTime() ? undefined : differ();
  if (wanted instanceof Map || wanted instanceof Set) {
    if (found.constructor !== wanted.constructor) differ();
    // A set of Python has no order.
    const listed = (value) => (value instanceof Set ? [...value].sort() : [...value]);
    return same(listed(found), listed(wanted), path);
  }
  if (Array.isArray(wanted) !== Array.isArray(found)) differ();
  for (const key of new Set([...Object.keys(found), ...Object.keys(wanted)])) same(found[key], wanted[key], `${path}.${key}`);
}

async function fails(promise, Kind) {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Kind) return error;
    throw new Failed(`${error?.name}: ${error?.message} is no ${Kind.name}`);
  }
  throw new Failed(`did not fail with ${Kind.name}`);
}

function check(is, text = "check") {
  if (!is) throw new Failed(text);
}

/** `promise`, or a failure where it takes seconds: nobody is to be waited for. */
const atOnce = (promise) => Promise.race([promise, pause(4).then(() => { throw new Failed("waited for"); })]);

async function until(condition) {
  for (let turn = 0; turn < 3000 && !condition(); turn += 1) await pause(0.01);
  check(condition(), `${condition} did not come true`);
}

/** A class of WebSockets that are connected to nothing, each of which is put into `made`. */
const standIn = (made) => class {
  constructor() {
    this.readyState = 1;
    this.sent = [];
    made.push(this);
  }
  send(text) { this.sent.push(JSON.parse(text)); }
  close() {}
  welcome() { this.onmessage({ data: JSON.stringify({ op: "welcome", limits: {} }) }); }
  calls() { return this.sent.filter((each) => each.op === "call"); }
};

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

export const tests = {
  async "values come back as they were"({ m, client }) {
    const moment = new Date(1795887000123);
    const args = {
      text: "Käse ☃ 😀", yes: true, nothing: null, number: 1.5, integer: 7, list: [1, [2]], object: { a: { b: 1 } },
      large: 2n ** 80n, negative: -(2n ** 80n), nan: NaN, infinite: -Infinity, bytes: new Uint8Array([0, 127, 255]),
      map: new Map([[1, "one"], ["$", 2]]), set: new Set([1, "a"]), moment, dollar: new Map([["$", 1]]),
      price: m.decimal("12.50"), day: m.date("2026-11-28"), at: m.time("17:30:00"), gap: m.timedelta(1, 30),
      id: m.uuid("00000000-0000-0000-0000-00000000000a"), proto: JSON.parse('{"__proto__": 1}'),
    };
    const { args: back } = await client.call("demo", "echo", args);
    same(back, args);
    same(Object.keys(back.proto), ["__proto__"]);
    same((await client.call("demo", "echo", { pair: m.tuple(1, 2), small: 5n })).args, { pair: [1, 2], small: 5 });
    const typed = await client.call("demo", "types");
    same(typed.datetime.iso, "2026-11-28T17:30:00.123456+00:00");
    // What has not been changed goes back with its microseconds.
    same((await client.call("demo", "echo", { at: typed.datetime })).args.at.iso, typed.datetime.iso);
    const later = new m.DateTime("2026-11-28T17:30:00.123456");
    same(later.isNaive, true);
    later.setUTCFullYear(2027);
    same((await client.call("demo", "echo", { at: later })).args.at.iso, "2027-11-28T17:30:00.123000+00:00");
  },

  async "what cannot be sent is refused here, with its path"({ m, client }) {
    class Own {}
    const loop = {};
    loop.loop = loop;
    for (const [value, path] of [[new Own(), "call.args.x"], [() => 1, "function"], [Symbol("s"), "symbol"], [loop, "levels"]]) {
      const error = await fails(client.call("demo", "echo", { x: value }), m.PayloadError);
      if (!error.message.includes(path)) throw new Failed(error.message);
    }
    await fails(client.call("demo", "echo", { x: new Date(NaN) }), m.PayloadError);
    await fails((async () => m.decimal("abc"))(), m.PayloadError);
  },

  async "each error has its class"({ m, client }) {
    const remote = await fails(client.call("demo", "fail"), m.RemoteError);
    same([remote.exception, remote.args, remote.name], ["ValueError", ["no such disk", 7], "RemoteError"]);
    const late = await fails(client.call("nobody", "x", {}, { timeout: 1 }), m.CallTimeout);
    same(late.details.state, "queued");
    await fails(client.call("nobody", "x", {}, { mandatory: true }), m.NoConsumer);
    await fails(client.call("image", "x"), m.AccessDenied);
    await fails(client.call("demo", "nope"), m.UnknownMethod);
    await fails(client.call("", "x"), m.UsageError);
    if (!(late instanceof m.RpcError)) throw new Failed("no RpcError");
  },

  async "an option that is unknown is named"({ m, client }) {
    const wrong = { timout: 5 };
    const asked = {
      call: () => client.call("demo", "echo", {}, wrong), cast: () => client.cast("demo", "echo", {}, wrong),
      fanout: () => client.fanout("demo", "echo", {}, wrong), publish: () => client.publish("disk.x", 1, wrong),
      stream: async () => client.stream("demo", "count", { n: 1 }, wrong), subscribe: () => client.subscribe("disk.#", wrong),
      Client: async () => new m.Client({ token: "x", url: client.url, ...wrong }),
    };
    for (const [verb, ask] of Object.entries(asked)) {
      const error = await fails(ask(), m.UsageError);
      if (!error.message.startsWith(`${verb}: the option 'timout' is unknown; known: `)) throw new Failed(error.message);
    }
    // One of another verb is as wrong, and what is undefined has been written, too.
    await fails(client.call("demo", "echo", {}, { ttl: undefined }), m.UsageError);
    await fails((async () => new m.Client({ url: client.url }))(), m.UsageError);
    same(client.pending.size, 0);
  },

  async "a timeout longer than any timer is not over at once"({ m, client }) {
    const sockets = [];
    const other = new m.Client({ url: "ws://127.0.0.1:9/rpcmq", token: "t", WebSocket: standIn(sockets) });
    await until(() => sockets.length === 1);
    const calls = [Infinity, 1e9, 3e6].map((timeout) => other.call("demo", "echo", {}, { timeout }));
    await pause(0.1);
    sockets[0].welcome();
    const sent = sockets[0].calls();
    check(sent.length === 3 && sent.every(({ timeout }) => timeout > 2e6 && timeout < 1e9));
    for (const { id } of sent) sockets[0].onmessage({ data: JSON.stringify({ op: "result", id, value: 7 }) });
    same(await atOnce(Promise.all(calls)), [7, 7, 7]);
    other.close();
    const items = [];
    for await (const item of client.stream("demo", "count", { n: 2 }, { timeout: Infinity })) items.push(item);
    same(items, [0, 1]);
  },

  async "a timeout that is none is named"({ m, client }) {
    for (const timeout of [0, -1, NaN, "5"]) {
      const error = await fails(client.call("demo", "echo", {}, { timeout }), m.UsageError);
      check(error.message === `call: timeout is a number of seconds above 0, not ${timeout}`);
      await fails((async () => new m.Client({ token: "x", url: client.url, timeout }))(), m.UsageError);
    }
    same(client.pending.size, 0);
  },

  async "many calls at once have their own answers"({ client }) {
    const numbers = Array.from({ length: 50 }, (_, n) => n);
    const found = await Promise.all(numbers.map((n) => client.call("demo", "echo", { n })));
    same(found.map((each) => each.args.n), numbers);
  },

  async "a signal cancels"({ m, client }) {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 50);
    const call = client.call("demo", "wait", { name: "signal" }, { signal: controller.signal });
    const error = await call.catch((reason) => reason);
    same(error.name, "AbortError");
    same((await client.call("demo", "wait", { seconds: 9 }, { signal: AbortSignal.abort(new m.UsageError("no")) }).catch((e) => e)).message, "no");
    same(client.pending.size, 0);
  },

  async "progress is reported"({ client }) {
    const seen = [];
    same(await client.call("demo", "report", {}, { onProgress: (value) => seen.push(value) }), "done");
    same(seen, [{ done: 50 }]);
  },

  async "casts and fanouts are taken"({ m, client }) {
    same(await client.cast("demo", "echo", {}, { confirm: true }), null);
    same(await client.fanout("demo", "echo", {}, { confirm: true }), 1);
    await fails(client.cast("nobody", "x", {}, { mandatory: true }), m.NoConsumer);
  },

  async "a stream gives all items, in order"({ client }) {
    let next = 0;
    for await (const item of client.stream("demo", "count", { n: 500 }, { credit: 7 })) same(item, next++);
    same(next, 500);
  },

  async "a stream that is left is cancelled, and one that fails fails"({ m, client }) {
    for await (const item of client.stream("demo", "count", { n: 100000 })) if (item === 3) break;
    same(client.pending.size, 0);
    await fails((async () => { for await (const _ of client.stream("demo", "fail")); })(), m.RemoteError);
    const controller = new AbortController();
    const seen = [];
    const error = await fails((async () => {
      for await (const item of client.stream("demo", "count", { n: 100000 }, { signal: controller.signal })) {
        seen.push(item);
        if (item === 3) controller.abort(new m.CallCancelled("enough"));
      }
    })(), m.CallCancelled);
    same(error.message, "enough");
  },

  async "events are heard"({ client }) {
    const subscription = await client.subscribe("disk.#");
    for (let n = 0; n < 5; n++) same(await client.publish("disk.a", { n }, { confirm: true }), 1);
    const seen = [];
    for await (const { topic, payload } of subscription) {
      seen.push([topic, payload.n]);
      if (seen.length === 5) break;
    }
    same(seen, Array.from({ length: 5 }, (_, n) => ["disk.a", n]));
    await pause(0.1);
    same(await client.publish("disk.a", 0, { confirm: true }), 0);
  },

  async "events beyond what may wait are counted"({ client }) {
    const subscription = await client.subscribe("disk.#", { maxQueued: 2 });
    for (let n = 0; n < 5; n++) await client.publish("disk.a", n, { confirm: true });
    await client.call("demo", "echo");
    same(subscription.lost, 3);
    same((await subscription.next()).value.payload, 3);
    subscription.close();
    same((await subscription.next()).done, true);
  },

  async "a subscription that is not allowed is refused"({ m, client }) {
    await fails(client.subscribe("#"), m.AccessDenied);
  },

  async "a token that is none ends the client"({ m, options }) {
    const refused = new m.Client({ ...options, token: "rpcmqt_none" });
    const ended = new Promise((resolve) => refused.addEventListener("close", (event) => resolve(event.detail)));
    await fails(refused.call("demo", "echo"), m.AccessDenied);
    const { code, isFinal } = await ended;
    same([code, isFinal], [4401, true]);
    await fails(refused.call("demo", "echo"), m.AccessDenied);
  },

  async "a token may come from a function"({ m, options }) {
    const client = new m.Client({ ...options, token: async () => options.token });
    same((await client.call("demo", "echo", { x: 1 })).args, { x: 1 });
    client.close();
    await fails(client.call("demo", "echo"), m.CallCancelled);
  },

  async "what has not ended fails when the client is closed"({ m, options }) {
    const client = new m.Client(options);
    const call = client.call("demo", "wait", { seconds: 5 });
    const subscription = await client.subscribe("disk.#");
    client.close();
    await fails(call, m.CallCancelled);
    same((await subscription.next()).done, true);
  },

  async "a loop over a subscription ends when the client is closed"({ m, options }) {
    const client = new m.Client(options);
    const subscription = await client.subscribe("disk.#");
    const seen = [];
    const loop = (async () => { for await (const { payload } of subscription) seen.push(payload); })();
    await client.publish("disk.a", 1, { confirm: true });
    await until(() => seen.length === 1);
    client.close();
    client.close();
    await atOnce(loop);
    same(seen, [1]);
    same(client.pending.size, 0);
  },

  async "a stream, and a subscription that is not made yet, fail when the client is closed"({ m, options }) {
    const client = new m.Client(options);
    const items = client.stream("demo", "count", { n: 100000 });
    same((await items.next()).value, 0);
    const subscribing = client.subscribe("disk.#");
    client.close();
    await fails(atOnce(subscribing), m.CallCancelled);
    await fails((async () => { for await (const _ of items); })(), m.CallCancelled);
    await fails(client.subscribe("disk.#"), m.CallCancelled);
  },

  async "a subscription that cannot be made again is an error of its loop"({ m }) {
    for (const refuse of [
      (socket) => socket.onclose({ code: 4401, reason: "it was revoked" }),
      (socket, { id }) => socket.onmessage({
        data: JSON.stringify({ op: "error", id, error: { type: "AccessDenied", text: "it was revoked" } }),
      }),
    ]) {
      const sockets = [];
      const client = new m.Client({ url: "ws://127.0.0.1:9/rpcmq", token: "t", WebSocket: standIn(sockets) });
      const subscribed = (socket) => socket.sent.find((each) => each.op === "subscribe");
      const subscribing = client.subscribe("disk.#", { timeout: 600 });
      await until(() => sockets.length === 1);
      sockets[0].welcome();
      sockets[0].onmessage({ data: JSON.stringify({ op: "result", id: subscribed(sockets[0]).id }) });
      const subscription = await atOnce(subscribing);
      sockets[0].onclose({ code: 1006, reason: "" });
      await until(() => sockets.length === 2);
      sockets[1].welcome();
      refuse(sockets[1], subscribed(sockets[1]));
      const error = await fails(atOnce((async () => { for await (const _ of subscription); })()), m.AccessDenied);
      check(error.message === "it was revoked" && subscription.gaps === 1);
      client.close();
    }
  },

  async "a call that is sent again has the time that is left"({ m }) {
    const sockets = [];
    const client = new m.Client({ url: "ws://127.0.0.1:9/rpcmq", token: "t", WebSocket: standIn(sockets) });
    await until(() => sockets.length === 1);
    sockets[0].welcome();
    const call = client.call("demo", "echo", {}, { timeout: 600, idempotent: true });
    const late = client.call("demo", "echo", {}, { timeout: 0.01, idempotent: true });
    check(sockets[0].calls().length === 2 && sockets[0].calls()[0].timeout <= 600);
    // Past its time only the gateway's answer is waited for, and not another gateway.
    await pause(0.1);
    sockets[0].onclose({ code: 1006, reason: "" });
    await fails(atOnce(late), m.CallTimeout);
    await until(() => sockets.length === 2);
    sockets[1].welcome();
    const [again, ...others] = sockets[1].calls();
    check(others.length === 0 && again.timeout > 0 && again.timeout < 600);
    sockets[1].onmessage({ data: JSON.stringify({ op: "result", id: again.id, value: 7 }) });
    check((await call) === 7);
    client.close();
  },

  async "without a gateway a call says so in time"({ m, options }) {
    const client = new m.Client({ ...options, url: "ws://127.0.0.1:9/rpcmq" });
    const call = atOnce(client.call("demo", "echo", {}, { timeout: 0.01 }));
    const controller = new AbortController();
    const other = client.call("demo", "echo", {}, { signal: controller.signal });
    controller.abort(new m.CallCancelled("enough"));
    await fails(other, m.CallCancelled);
    await fails(call, m.GatewayUnreachable);
    client.close();
  },
};

export async function run(m, options) {
  const lines = [];
  for (const [name, test] of Object.entries(tests)) {
    const client = new m.Client(options);
    try {
      await test({ m, client, options });
      lines.push(`ok ${name}`);
    } catch (error) {
      lines.push(`FAILED ${name}: ${error?.stack ?? error}`);
    } finally {
      client.close();
    }
  }
  return lines;
}
