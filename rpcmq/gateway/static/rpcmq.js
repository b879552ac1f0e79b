/**
 * Client of `rpcmq gateway` for browsers and Node: call, cast, stream, publish and subscribe.
 *
 *     import { Client, CallTimeout } from "/rpcmq.js";
 *
 *     const client = new Client({ token });
 *     const free = await client.call("disk.node-3", "free", { path: "/" }, { timeout: 5 });
 *     for await (const { topic, payload } of await client.subscribe("disk.#")) console.log(topic, payload);
 *
 * It needs no build step. Times are seconds, as everywhere in rpcmq. docs/gateway.md has the rest.
 *
 * @module rpcmq
 */

const VERSION = 1;
const SUBPROTOCOL = "rpcmq.1";
const BAD_TOKEN = 4401;
const NORMAL = 1000;
/** Levels of arrays and objects in a message. */
const MAX_DEPTH = 90;
/** Seconds that an answer may be late, which says where the call was, before the gateway is not waited for any more. */
const GRACE = 5;
const FIRST_PAUSE = 0.2;
const LONGEST_PAUSE = 15;
/** Seconds of the longest timer: one that is longer would be over at once. */
const LONGEST_TIMEOUT = 2_147_483;

// --- errors --------------------------------------------------------------------------------------

/** Root of all errors of this module. `details` has the same as the text, as fields. */
export class RpcError extends Error {
  /**
   * @param {string} text
   * @param {Record<string, any>} [details]
   */
  constructor(text, details = {}) {
    super(text);
    this.name = new.target.name;
    /** @type {Record<string, any>} */
    this.details = details;
  }
}

/** The caller passed something that rpcmq cannot take; nothing was sent. */
export class UsageError extends RpcError {}
/** A value cannot be sent; the text has its path. */
export class PayloadError extends UsageError {}
/** A message or a value was not decoded. */
export class PayloadRefused extends RpcError {}
/** A call ended without a result. */
export class CallError extends RpcError {}
/** The deadline passed; the text and `details` say where the call was. */
export class CallTimeout extends CallError {}
/** Nobody consumes the topic. */
export class NoConsumer extends CallError {}
/** A limit was reached; nothing was done. `details.retry_after`, if there, is a time in seconds. */
export class Overloaded extends CallError {}
/** The service, a router or the gateway went away while the call ran; it may have been done. */
export class LinkLost extends CallError {}
/** The token has no right to that. */
export class AccessDenied extends CallError {}
/** The call was cancelled. */
export class CallCancelled extends CallError {}
/** Such calls kill the services that run them, and are stopped; the text has the story. */
export class CallQuarantined extends CallCancelled {}
/** The gateway reaches no router. */
export class RouterUnreachable extends RpcError {}
/** There is no such method. */
export class UnknownMethod extends RpcError {}
/** The gateway is stopping; nothing was done. */
export class Draining extends RpcError {}
/** The gateway failed. */
export class InternalError extends RpcError {}
/** There is no connection to the gateway, or it refuses this client for good. */
export class GatewayUnreachable extends RpcError {}

/** The method raised an exception. */
export class RemoteError extends RpcError {
  /**
   * @param {string} text
   * @param {Record<string, any>} [details]
   * @param {Record<string, any>} [told]
   */
  constructor(text, details = {}, told = {}) {
    super(text, details);
    /** Class of the exception, for example "ValueError". @type {string} */
    this.exception = told.exception ?? "";
    /** Its arguments. @type {any[]} */
    this.args = told.args ?? [];
    /** What it was raised from, nearest first: pairs of class and text. @type {[string, string][]} */
    this.causes = told.causes ?? [];
    /** Its traceback, where the gateway tells it. @type {string} */
    this.traceback = told.traceback ?? "";
  }
}

/** The method ran, and ended with the error of a call that it made itself. */
export class NestedCallError extends RemoteError {}

/** @type {Record<string, new (text: string, details?: any, told?: any) => RpcError>} */
const ERRORS = {
  UsageError, PayloadError, PayloadRefused, CallError, CallTimeout, NoConsumer, Overloaded, LinkLost, AccessDenied,
  CallCancelled, CallQuarantined, RouterUnreachable, UnknownMethod, Draining, InternalError, RemoteError, NestedCallError,
};

/** @param {Record<string, any>} told */
function errorOf(told) {
  const Kind = Object.hasOwn(ERRORS, told.type) ? ERRORS[told.type] : RpcError;
  const error = new Kind(told.text, told.details ?? {}, told);
  if (Kind === RpcError) error.name = String(told.type);
  return error;
}

// --- values --------------------------------------------------------------------------------------

/** A value that JavaScript has no type for: a decimal, a date, a time, a timedelta, a uuid, an exception. */
export class Typed {
  /**
   * @param {string} tag
   * @param {any} value as typed JSON has it
   */
  constructor(tag, value) {
    this.tag = tag;
    this.value = value;
    Object.freeze(this);
  }

  toString() {
    return typeof this.value === "string" ? this.value : JSON.stringify(this.value);
  }

  toJSON() {
    return this.value;
  }
}

/** A datetime that keeps the microseconds and the offset that it came with. Without an offset it is read as UTC. */
export class DateTime extends Date {
  /** @param {string} iso */
  constructor(iso) {
    const hasZone = /(Z|[+-][0-9]{2}:[0-9]{2}(:[0-9.]+)?)$/.test(iso);
    super((hasZone ? iso.replace(/([+-][0-9]{2}:[0-9]{2}):[0-9.]+$/, "$1") : `${iso}Z`).replace(/(\.[0-9]{3})[0-9]+/, "$1"));
    /** As it came. */
    this.iso = iso;
    /** Whether it had no offset. */
    this.isNaive = !hasZone;
    /** @private */
    this._moment = this.getTime();
  }
}

const PATTERNS = {
  decimal: /^[+-]?((([0-9]+(\.[0-9]*)?)|(\.[0-9]+))([eE][+-]?[0-9]+)?|Infinity|s?NaN[0-9]*)$/,
  date: /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/,
  time: /^[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{6})?)?)?$/,
  uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
};

/**
 * @param {keyof typeof PATTERNS} tag
 * @param {string} text
 */
function typed(tag, text) {
  if (typeof text !== "string" || !PATTERNS[tag].test(text)) throw new PayloadError(`${String(text)} is no ${tag}`);
  return new Typed(tag, text);
}

/** A decimal number, as "12.50". @param {string} text */
export const decimal = (text) => typed("decimal", text);
/** A date, as "2026-11-28". @param {string} text */
export const date = (text) => typed("date", text);
/** A time of day, as "17:30:00". @param {string} text */
export const time = (text) => typed("time", text);
/** A UUID, lower case. @param {string} text */
export const uuid = (text) => typed("uuid", text);
/** A span of time. @param {number} days @param {number} [seconds] @param {number} [microseconds] */
export function timedelta(days, seconds = 0, microseconds = 0) {
  if (![days, seconds, microseconds].every(Number.isInteger)) throw new PayloadError("a timedelta has integers");
  if (seconds < 0 || seconds >= 86400 || microseconds < 0 || microseconds >= 1e6) {
    throw new PayloadError("of a timedelta 0 <= seconds < 86400 and 0 <= microseconds < 1000000");
  }
  return new Typed("timedelta", [days, seconds, microseconds]);
}
/** A tuple. @param {any[]} items */
export const tuple = (...items) => new Typed("tuple", items);

/** @param {string} tag @param {any} content */
const tagged = (tag, content) => ({ $: tag, v: content });

/** @param {Uint8Array} bytes */
function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/**
 * `value` as typed JSON has it (docs/protocol/payloads.md).
 *
 * @param {any} value
 * @param {string} [path]
 * @param {number} [room]
 * @returns {any}
 */
export function lower(value, path = "value", room = MAX_DEPTH) {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "undefined":
      return null;
    case "number":
      return Number.isFinite(value) ? value : tagged("float", Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf");
    case "bigint":
      return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER)
        ? Number(value)
        : tagged("int", value.toString(16));
    case "object":
      if (value === null) return null;
      break;
    default:
      throw new PayloadError(`${path}: a ${typeof value} cannot be sent`);
  }
  if (room <= 0) throw new PayloadError(`${path}: nested more than ${MAX_DEPTH} levels deep, or in itself`);
  if (Array.isArray(value)) return Array.from(value, (item, at) => lower(item, `${path}[${at}]`, room - 1));
  if (value instanceof Date) return lowerDate(value, path);
  if (value instanceof ArrayBuffer) return tagged("bytes", base64(new Uint8Array(value)));
  if (ArrayBuffer.isView(value)) return tagged("bytes", base64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)));
  if (value instanceof Map) return lowerPairs(value, path, room);
  if (value instanceof Set) return tagged("set", Array.from(value, (item) => lower(item, `${path}{}`, room - 2)));
  if (value instanceof Typed) {
    return tagged(value.tag, value.tag === "tuple" ? lower(value.value, path, room - 2) : value.value);
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    throw new PayloadError(`${path}: a ${prototype.constructor?.name ?? "value"} cannot be sent; send a plain object`);
  }
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  if (Object.hasOwn(value, "$")) return lowerPairs(entries, path, room);
  /** @type {Record<string, any>} */
  const made = {};
  for (const [key, item] of entries) {
    // An own member, whatever its name.
    const lowered = lower(item, `${path}.${key}`, room - 1);
    Object.defineProperty(made, key, { value: lowered, enumerable: true, configurable: true, writable: true });
  }
  return made;
}

/** @param {Iterable<[any, any]>} pairs @param {string} path @param {number} room */
function lowerPairs(pairs, path, room) {
  const made = [];
  for (const [key, item] of pairs) {
    made.push([lower(key, `key of ${path}`, room - 3), lower(item, `${path}[${String(key)}]`, room - 3)]);
  }
  return tagged("dict", made);
}

/** @param {Date} value @param {string} path */
function lowerDate(value, path) {
  if (Number.isNaN(value.getTime())) throw new PayloadError(`${path}: an invalid Date cannot be sent`);
  if (value instanceof DateTime && value.getTime() === value._moment) return tagged("datetime", value.iso);
  const iso = value.toISOString();
  if (iso.length !== 24) throw new PayloadError(`${path}: a Date before the year 0 or after 9999 cannot be sent`);
  return tagged("datetime", iso);
}

/** @type {Record<string, (content: any) => any>} */
const READERS = {
  int: (text) => (text.startsWith("-") ? -BigInt(`0x${text.slice(1)}`) : BigInt(`0x${text}`)),
  float: (text) => ({ nan: NaN, inf: Infinity, "-inf": -Infinity })[text],
  bytes: (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0)),
  datetime: (text) => new DateTime(text),
  tuple: (items) => items,
  set: (items) => new Set(items),
  frozenset: (items) => new Set(items),
  dict: (pairs) => new Map(pairs),
};

/**
 * The value that a text in typed JSON encodes.
 *
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
  return JSON.parse(text, (_, value) => {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, "$")) return value;
    if (Object.getPrototypeOf(value) !== Object.prototype) return value;
    return Object.hasOwn(READERS, value.$) ? READERS[value.$](value.v) : new Typed(value.$, value.v);
  });
}

// --- options -------------------------------------------------------------------------------------

/** Options of each verb, and of the client itself. @type {Record<string, string[]>} */
const OPTIONS = {
  Client: ["url", "token", "timeout", "WebSocket", "name"],
  call: ["timeout", "signal", "exchange", "context", "idempotent", "mandatory", "onProgress"],
  cast: ["timeout", "signal", "exchange", "context", "idempotent", "mandatory", "confirm", "ttl"],
  fanout: ["timeout", "signal", "exchange", "context", "confirm"],
  publish: ["timeout", "signal", "context", "confirm"],
  stream: ["timeout", "signal", "exchange", "context", "mandatory", "credit"],
  subscribe: ["timeout", "signal", "maxQueued"],
};

/**
 * Refuse an option that `verb` does not have: a misspelt one would be as if it were not there.
 *
 * @param {string} verb
 * @param {Record<string, any>} options
 */
function checkOptions(verb, options) {
  if (options === null || typeof options !== "object") {
    throw new UsageError(`${verb}: options are an object, not ${String(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!OPTIONS[verb].includes(name)) {
      throw new UsageError(`${verb}: the option '${name}' is unknown; known: ${OPTIONS[verb].join(", ")}`);
    }
  }
  const { timeout } = options;
  if (timeout !== undefined && timeout !== null && !(typeof timeout === "number" && timeout > 0)) {
    throw new UsageError(`${verb}: timeout is a number of seconds above 0, not ${String(timeout)}`);
  }
}

// --- requests ------------------------------------------------------------------------------------

/**
 * @typedef {object} Options
 * @property {number} [timeout] seconds; of a stream: the longest wait for each item
 * @property {AbortSignal} [signal] cancels it
 * @property {string} [exchange] namespace of the topic
 * @property {Record<string, any>} [context] request context, where the token may bring one
 * @property {boolean} [idempotent] may be run twice: it is sent again after a reconnect
 * @property {boolean} [mandatory] fail at once where nobody consumes the topic
 * @property {boolean} [confirm] wait until the router has it
 * @property {number} [ttl] seconds after which a cast is worth nothing
 * @property {number} [credit] items that may be on their way at once
 * @property {(value: any) => void} [onProgress] is told what the method reports
 */

/** A request on its way. */
class Pending {
  /**
   * @param {Client} client
   * @param {Record<string, any>} message
   * @param {Options} options
   */
  constructor(client, message, options) {
    this.client = client;
    this.message = message;
    this.options = options;
    this.isSent = false;
    /** Whether its time is over, and only the answer of the gateway, which says so, too, is waited for. */
    this.isLate = false;
    this.deadline = 0;
    /** @type {any} */
    this.timer = undefined;
    this.onAbort = () => this.cancel(options.signal?.reason ?? new CallCancelled("the call was cancelled"));
    options.signal?.addEventListener("abort", this.onAbort, { once: true });
  }

  /** Whether it may be sent again after a reconnect. */
  get isRepeatable() {
    return this.message.idempotent === true;
  }

  /** @param {any} _value */
  result(_value) {}
  /** @param {unknown} _error */
  failed(_error) {}
  /** @param {Record<string, any>} _message */
  more(_message) {}
  /** The connection was lost after it had been sent. */
  disconnected() {
    if (this.isRepeatable) this.sendAgain();
    else this.fail(new LinkLost("the connection to the gateway was lost; the request may have been done"));
  }

  /** It was not done, or may be done twice: send it over the next connection. */
  sendAgain() {
    this.isSent = false;
    if (this.isLate) this.expired();
  }

  /** The message as it is sent now: of a call with the time that is left. */
  toSend() {
    if (this.message.op !== "call") return this.message;
    const left = Math.ceil(this.deadline - performance.now());
    return { ...this.message, timeout: Math.max(1, left) / 1000 };
  }

  /** @param {number} seconds */
  expireIn(seconds) {
    this.deadline = performance.now() + seconds * 1000;
    this.timer = setTimeout(() => this.expired(), seconds * 1000);
  }

  expired() {
    if (this.isSent && !this.isLate) {
      this.isLate = true;
      this.timer = setTimeout(() => this.expired(), GRACE * 1000);
      return;
    }
    this.cancel(
      this.isLate
        ? new CallTimeout(`no answer of the gateway in time to ${this.message.op} ${this.message.topic ?? ""}`)
        : new GatewayUnreachable(`there was no connection to the gateway ${this.client.url} in time`),
    );
  }

  /** @param {unknown} reason */
  cancel(reason) {
    if (this.isSent) this.client.send({ op: "cancel", id: this.message.id });
    this.fail(reason);
  }

  /** @param {unknown} error */
  fail(error) {
    this.forget();
    this.failed(error);
  }

  /** The program has closed the client. @param {RpcError} error */
  closed(error) {
    this.fail(error);
  }

  forget() {
    clearTimeout(this.timer);
    this.options.signal?.removeEventListener("abort", this.onAbort);
    this.client.pending.delete(this.message.id);
  }
}

/** A request with one answer. */
class Single extends Pending {
  /** @param {Client} client @param {Record<string, any>} message @param {Options} options */
  constructor(client, message, options) {
    super(client, message, options);
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** @param {any} value */
  result(value) {
    this.forget();
    this.resolve?.(value);
  }

  /** @param {unknown} error */
  failed(error) {
    this.reject?.(error);
  }

  /** @param {Record<string, any>} message */
  more(message) {
    if (message.op === "progress") this.options.onProgress?.(message.value);
  }
}

/** Values that wait to be taken, one after the other. */
class Waiting {
  constructor() {
    /** @type {any[]} */
    this.values = [];
    /** @type {{ resolve: (value: any) => void, reject: (error: unknown) => void }[]} */
    this.takers = [];
    /** @type {{ error?: unknown } | undefined} */
    this.end = undefined;
  }

  /** @param {any} value */
  put(value) {
    const taker = this.takers.shift();
    if (taker) taker.resolve({ value, done: false });
    else this.values.push(value);
  }

  /** @param {unknown} [error] told once, to the next who takes; undefined: there is none */
  close(error) {
    if (this.end) return;
    const [first, ...others] = this.takers.splice(0);
    this.end = first ? {} : { error };
    if (error === undefined) first?.resolve({ value: undefined, done: true });
    else first?.reject(error);
    for (const taker of others) taker.resolve({ value: undefined, done: true });
  }

  /** @returns {Promise<IteratorResult<any>>} */
  take() {
    if (this.values.length) return Promise.resolve({ value: this.values.shift(), done: false });
    if (this.end) {
      const { error } = this.end;
      this.end = {};
      return error === undefined ? Promise.resolve({ value: undefined, done: true }) : Promise.reject(error);
    }
    return new Promise((resolve, reject) => this.takers.push({ resolve, reject }));
  }
}

/** The items of a stream: an async iterator. To leave the loop cancels it. */
export class Stream extends Pending {
  /** @param {Client} client @param {Record<string, any>} message @param {Options} options */
  constructor(client, message, options) {
    super(client, message, options);
    this.waiting = new Waiting();
    this.taken = 0;
  }

  /** @param {unknown} error */
  failed(error) {
    this.waiting.close(error);
  }

  /** @param {Record<string, any>} message */
  more(message) {
    clearTimeout(this.timer);
    if (message.op === "item") this.waiting.put(message.value);
    if (message.op !== "end") return;
    this.forget();
    this.waiting.close();
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<any>>} */
  async next() {
    const found = await this.waiting.take();
    // Half of what may be on its way was taken: ask for as much.
    if (!found.done && ++this.taken * 2 >= this.message.credit && this.client.pending.has(this.message.id)) {
      this.client.send({ op: "credit", id: this.message.id, count: this.taken });
      this.taken = 0;
    }
    return found;
  }

  /** @returns {Promise<IteratorResult<any>>} */
  async return() {
    if (this.client.pending.has(this.message.id)) this.cancel(undefined);
    this.waiting.values = [];
    return { value: undefined, done: true };
  }
}

/**
 * Events whose topics match a pattern: an async iterator of `{ topic, payload }`. To leave the loop ends it.
 *
 * `close()`, its own or the client's, ends the iteration as the end of any list does. It throws where the gateway
 * refuses the token, or the subscription, for good. After a reconnect it subscribes again; what was published meanwhile
 * is not seen, and `gaps` counts that.
 */
export class Subscription extends Pending {
  /** @param {Client} client @param {Record<string, any>} message @param {Options & { maxQueued?: number }} options */
  constructor(client, message, options) {
    super(client, message, options);
    this.waiting = new Waiting();
    this.pattern = message.pattern;
    /** Events lost because the gateway, or this program, was too slow to take them. */
    this.lost = 0;
    /** Reconnects. */
    this.gaps = 0;
    this.maxQueued = options.maxQueued ?? 1000;
    this.isReady = false;
    this.ready = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.ready.catch(() => {});
  }

  get isRepeatable() {
    return true;
  }

  disconnected() {
    this.isSent = false;
    this.gaps += 1;
  }

  result() {
    clearTimeout(this.timer);
    this.isReady = true;
    this.resolve?.(this);
  }

  /** @param {unknown} error */
  failed(error) {
    this.reject?.(error);
    this.waiting.close(error);
  }

  /** @param {Record<string, any>} message */
  more(message) {
    if (message.op === "lost") this.lost += message.count;
    if (message.op === "end") this.fail(undefined);
    if (message.op !== "event") return;
    if (this.waiting.values.length >= this.maxQueued) {
      this.waiting.values.shift();
      this.lost += 1;
    }
    this.waiting.put({ topic: message.topic, payload: message.payload });
  }

  /** @param {RpcError} error */
  closed(error) {
    if (this.isReady) this.close();
    else this.fail(error);
  }

  /** Get no more events. */
  close() {
    if (this.client.pending.has(this.message.id)) this.cancel(undefined);
    this.waiting.values = [];
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<{ topic: string, payload: any }>>} */
  next() {
    return this.waiting.take();
  }

  /** @returns {Promise<IteratorResult<any>>} */
  async return() {
    this.close();
    return { value: undefined, done: true };
  }
}

// --- client --------------------------------------------------------------------------------------

/**
 * @typedef {object} ClientOptions
 * @property {string} [url] of the gateway's WebSocket; default: that of the page, with the path /rpcmq
 * @property {string | (() => string | Promise<string>)} token, or what gives it for each connection
 * @property {number} [timeout] seconds of a call that names none; default: 30
 * @property {any} [WebSocket] class to use in place of the global one
 * @property {string} [name] of this program, for the gateway's log
 */

/**
 * A connection to a gateway, made again whenever it is lost.
 *
 * Events: "open"; "close", with `detail` of `code`, `reason` and `isFinal`: whether there are no further attempts, as
 * after `close()` and where the token is refused.
 */
export class Client extends EventTarget {
  /** @param {ClientOptions} options */
  constructor(options) {
    super();
    checkOptions("Client", options);
    if (options.token === undefined) throw new UsageError("Client: the option 'token' is missing");
    /** URL of the WebSocket. */
    this.url = String(options.url ?? ownUrl());
    this.token = options.token;
    this.timeout = options.timeout ?? 30;
    this.name = options.name ?? "rpcmq.js";
    this.WebSocket = options.WebSocket;
    /** What the gateway said in its welcome. @type {Record<string, any>} */
    this.welcome = {};
    /** Requests that have not ended, by id. @type {Map<number, Pending>} */
    this.pending = new Map();
    this.nextId = 1;
    /** "connecting", "open", "draining" or "closed". */
    this.state = "connecting";
    this.attempts = 0;
    /** @type {any} */
    this.socket = undefined;
    /** @type {any} */
    this.timer = undefined;
    /** Why there will be no connection any more. @type {RpcError | undefined} */
    this.failure = undefined;
    this.connect();
  }

  /**
   * Ask one consumer of `topic`, and wait for its answer.
   *
   * @param {string} topic
   * @param {string} method
   * @param {Record<string, any>} [args]
   * @param {Options} [options]
   * @returns {Promise<any>}
   */
  call(topic, method, args = {}, options = {}) {
    const timeout = this.secondsOf(options);
    const { idempotent, mandatory } = options;
    const progress = options.onProgress ? true : undefined;
    const about = { ...common(topic, method, args, options), timeout, idempotent, mandatory, progress };
    return this.single("call", about, options, timeout);
  }

  /**
   * Tell one consumer of `topic`; no answer.
   *
   * @param {string} topic
   * @param {string} method
   * @param {Record<string, any>} [args]
   * @param {Options} [options]
   * @returns {Promise<void>} fulfilled when the gateway has sent it, with `confirm` when the router has it
   */
  cast(topic, method, args = {}, options = {}) {
    const { confirm, idempotent, mandatory, ttl } = options;
    return this.single("cast", { ...common(topic, method, args, options), confirm, idempotent, mandatory, ttl }, options);
  }

  /**
   * Tell all consumers of `topic`; no answer.
   *
   * @param {string} topic
   * @param {string} method
   * @param {Record<string, any>} [args]
   * @param {Options} [options]
   * @returns {Promise<number | null>} with `confirm`: how many there are
   */
  fanout(topic, method, args = {}, options = {}) {
    return this.single("fanout", { ...common(topic, method, args, options), confirm: options.confirm }, options);
  }

  /**
   * Send an event to all who subscribe to a pattern that matches `topic`.
   *
   * @param {string} topic
   * @param {any} payload
   * @param {Options} [options]
   * @returns {Promise<number | null>} with `confirm`: how many there are
   */
  publish(topic, payload, options = {}) {
    return this.single("publish", { topic, payload, context: options.context, confirm: options.confirm }, options);
  }

  /**
   * Ask one consumer for the items that its method yields: `for await (const item of client.stream(...))`.
   *
   * @param {string} topic
   * @param {string} method
   * @param {Record<string, any>} [args]
   * @param {Options} [options]
   * @returns {Stream}
   */
  stream(topic, method, args = {}, options = {}) {
    const timeout = this.secondsOf(options);
    const credit = Math.max(1, Math.min(1000, Math.floor(options.credit ?? 8)));
    const about = { ...common(topic, method, args, options), timeout, credit, mandatory: options.mandatory };
    const stream = new Stream(this, this.message("stream", about, options), options);
    this.begin(stream, timeout);
    return stream;
  }

  /**
   * Get the events whose topics match `pattern`: `*` is one word, `#` any number of words.
   *
   * @param {string} pattern
   * @param {Options & { maxQueued?: number }} [options] `maxQueued`: events that wait here, of which the oldest are lost
   * @returns {Promise<Subscription>} fulfilled when events come
   */
  async subscribe(pattern, options = {}) {
    const subscription = new Subscription(this, this.message("subscribe", { pattern }, options), options);
    this.begin(subscription, this.secondsOf(options));
    await subscription.ready;
    return subscription;
  }

  /** End the connection, and subscriptions as their own `close()` does; all else fails with CallCancelled. */
  close() {
    if (this.state === "closed") return;
    const error = new CallCancelled("the client was closed");
    for (const request of [...this.pending.values()]) request.closed(error);
    this.finish(error, NORMAL, "");
  }

  // --- parts ---

  /**
   * @param {string} op
   * @param {Record<string, any>} about
   * @param {Options} options
   * @param {number} [timeout]
   * @returns {Promise<any>}
   */
  async single(op, about, options, timeout = this.secondsOf(options)) {
    const request = new Single(this, this.message(op, about, options), options);
    this.begin(request, timeout);
    return request.promise;
  }

  /** @param {Options} options */
  secondsOf(options) {
    return Math.min(options.timeout ?? this.timeout, LONGEST_TIMEOUT);
  }

  /**
   * @param {string} op
   * @param {Record<string, any>} about
   * @param {Record<string, any>} options
   */
  message(op, about, options) {
    checkOptions(op, options);
    return { op, id: this.nextId++, ...lower(about, op) };
  }

  /**
   * @param {Pending} request
   * @param {number} seconds
   */
  begin(request, seconds) {
    if (this.failure) return request.fail(this.failure);
    if (request.options.signal?.aborted) return request.fail(request.options.signal.reason);
    this.pending.set(request.message.id, request);
    request.expireIn(seconds);
    this.sendWaiting();
  }

  sendWaiting() {
    if (this.state !== "open") return;
    for (const request of this.pending.values()) {
      if (request.isSent) continue;
      request.isSent = true;
      this.send(request.toSend());
    }
  }

  /** @param {Record<string, any>} message already lowered */
  send(message) {
    // A socket that is closing has told its "close" event, or will.
    if (this.socket?.readyState === 1) this.socket.send(JSON.stringify(message));
  }

  async connect() {
    const attempt = {};
    this.attempt = attempt;
    try {
      const Kind = this.WebSocket ?? globalThis.WebSocket ?? (await import("./rpcmq-node.js")).WebSocket;
      const token = typeof this.token === "function" ? await this.token() : this.token;
      if (this.attempt !== attempt || this.state === "closed") return;
      const socket = new Kind(this.url, SUBPROTOCOL);
      this.socket = socket;
      socket.onopen = () => {
        if (this.socket === socket) this.send({ op: "hello", version: VERSION, token: String(token), client: this.name });
      };
      socket.onmessage = (/** @type {any} */ event) => this.socket === socket && this.receive(event.data);
      socket.onerror = () => {};
      socket.onclose = (/** @type {any} */ event) => this.socket === socket && this.lost(event.code, event.reason);
    } catch (error) {
      if (error instanceof SyntaxError) this.finish(new UsageError(`${this.url}: ${error.message}`), NORMAL, error.message);
      else this.lost(1006, String(error));
    }
  }

  /** @param {string} text */
  receive(text) {
    this.heard = Date.now();
    const message = parse(text);
    if (message.op === "welcome") return this.welcomed(message);
    if (message.op === "draining") {
      this.state = "draining";
      return;
    }
    const request = this.pending.get(message.id);
    if (!request) return; // a pong, or about what was given up
    if (message.op === "result") request.result(message.value);
    else if (message.op !== "error") request.more(message);
    else if (message.error.type === "Draining") request.sendAgain();
    else request.fail(errorOf(message.error));
  }

  /** @param {Record<string, any>} message */
  welcomed(message) {
    this.welcome = message;
    this.state = "open";
    this.attempts = 0;
    this.watch(message.limits?.ping_seconds ?? 20);
    this.dispatchEvent(new Event("open"));
    this.sendWaiting();
  }

  /**
   * Find out when the gateway is not there any more, which no close tells where a cable was pulled.
   *
   * @param {number} seconds
   */
  watch(seconds) {
    clearInterval(this.watcher);
    const socket = this.socket;
    this.watcher = setInterval(() => {
      const silence = (Date.now() - (this.heard ?? 0)) / 1000;
      if (silence > 2 * seconds + GRACE) {
        this.lost(1006, "the gateway is silent");
        socket.close();
      } else if (silence >= seconds) {
        this.send({ op: "ping", id: 0 });
      }
    }, Math.max(100, seconds * 500));
    this.watcher.unref?.();
  }

  /** @param {number} code @param {string} reason */
  lost(code, reason) {
    if (this.state === "closed") return;
    this.disconnect();
    if (code === BAD_TOKEN && typeof this.token !== "function") {
      this.finish(new AccessDenied(reason || "the gateway refuses the token"), code, reason);
      return;
    }
    const isSteady = this.state === "connecting";
    this.state = "connecting";
    for (const request of [...this.pending.values()]) if (request.isSent) request.disconnected();
    this.dispatchEvent(new CustomEvent("close", { detail: { code, reason, isFinal: false } }));
    // Of many clients of a gateway that was restarted not all come back in the same moment.
    const pause = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.attempts) * (0.5 + Math.random());
    if (isSteady || this.attempts === 0) this.attempts += 1;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), pause * 1000);
  }

  disconnect() {
    clearInterval(this.watcher);
    const socket = this.socket;
    this.socket = undefined;
    return socket;
  }

  /** @param {RpcError} failure @param {number} code @param {string} reason */
  finish(failure, code, reason) {
    if (this.state === "closed") return;
    this.state = "closed";
    this.failure = failure;
    clearTimeout(this.timer);
    this.disconnect()?.close(NORMAL);
    for (const request of [...this.pending.values()]) request.fail(failure);
    this.dispatchEvent(new CustomEvent("close", { detail: { code, reason, isFinal: true } }));
  }
}

/** @param {string} topic @param {string} method @param {Record<string, any>} args @param {Options} options */
function common(topic, method, args, options) {
  return { topic, method, args, exchange: options.exchange, context: options.context };
}

function ownUrl() {
  if (typeof location === "undefined") throw new UsageError("give the url of the gateway: ws://127.0.0.1:7790/rpcmq");
  return new URL("/rpcmq", location.href.replace(/^http/, "ws")).href.split("#")[0];
}
