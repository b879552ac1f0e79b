/**
 * A WebSocket (RFC 6455) for a Node that has none of its own, as before version 22. rpcmq.js loads it where it is needed.
 *
 * It has of the browsers' class what rpcmq.js uses: text messages, `send`, `close`, `readyState`, and the four handlers.
 *
 * @module rpcmq-node
 */

import { createHash, randomBytes } from "node:crypto";
import http from "node:http";
import https from "node:https";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const CONTINUATION = 0, TEXT = 1, CLOSE = 8, PING = 9, PONG = 10;
/** Bytes of the longest message that is taken. */
const MAX_BYTES = 64 * 1024 * 1024;
const CLOSE_MILLISECONDS = 3000;

export class WebSocket {
  /**
   * @param {string} url
   * @param {string} [protocol]
   */
  constructor(url, protocol) {
    const target = new URL(url);
    if (target.protocol !== "ws:" && target.protocol !== "wss:") {
      throw new SyntaxError(`the url of a WebSocket begins with ws:// or wss://, not ${target.protocol}`);
    }
    this.readyState = 0;
    /** @type {any} */ this.onopen = null;
    /** @type {any} */ this.onmessage = null;
    /** @type {any} */ this.onerror = null;
    /** @type {any} */ this.onclose = null;
    this.bytes = Buffer.alloc(0);
    /** @type {Buffer[]} */ this.pieces = [];
    this.size = 0;
    /** @type {[number, string]} */ this.ending = [1006, ""];
    const key = randomBytes(16).toString("base64");
    const accepted = createHash("sha1").update(key + GUID).digest("base64");
    const library = target.protocol === "wss:" ? https : http;
    const request = library.request(new URL(url.replace(/^ws/, "http")), {
      headers: {
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Version": "13",
        ...(protocol ? { "Sec-WebSocket-Protocol": protocol } : {}),
      },
    });
    this.request = request;
    request.on("upgrade", (response, socket, head) => {
      if (response.headers["sec-websocket-accept"] !== accepted) return this.fail(1006, "not a WebSocket");
      this.opened(socket, head);
    });
    request.on("response", (response) => {
      /** @type {Buffer[]} */ const body = [];
      response.on("data", (data) => body.length < 16 && body.push(data));
      response.on("end", () => this.fail(1006, `HTTP ${response.statusCode}: ${Buffer.concat(body)}`.trim().slice(0, 300)));
    });
    request.on("error", (error) => this.fail(1006, error.message));
    request.end();
  }

  /** @param {import("node:net").Socket} socket @param {Buffer} head */
  opened(socket, head) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (data) => this.take(data));
    socket.on("error", () => {});
    socket.on("close", () => this.ended());
    if (this.readyState !== 0) return socket.destroy();
    this.readyState = 1;
    this.onopen?.({});
    if (head.length) this.take(head);
  }

  /** @param {string} text */
  send(text) {
    if (this.readyState === 1) this.write(TEXT, Buffer.from(text));
  }

  /** @param {number} [code] @param {string} [reason] */
  close(code = 1000, reason = "") {
    if (this.readyState === 0) return this.fail(1006, "closed before it was open");
    if (this.readyState !== 1) return;
    this.readyState = 2;
    const body = Buffer.concat([Buffer.alloc(2), Buffer.from(reason).subarray(0, 123)]);
    body.writeUInt16BE(code);
    this.write(CLOSE, body);
    setTimeout(() => this.socket?.destroy(), CLOSE_MILLISECONDS).unref();
  }

  /** @param {number} code @param {string} reason */
  fail(code, reason) {
    this.ending = [code, reason];
    this.request.destroy();
    this.socket?.destroy();
    this.onerror?.({ message: reason });
    if (!this.socket) this.ended();
  }

  ended() {
    if (this.readyState === 3) return;
    this.readyState = 3;
    const [code, reason] = this.ending;
    this.onclose?.({ code, reason });
  }

  /** @param {number} opcode @param {Buffer} body */
  write(opcode, body) {
    const length = body.length;
    const head = Buffer.alloc(length < 126 ? 2 : length < 65536 ? 4 : 10);
    head[0] = 0x80 | opcode;
    head[1] = 0x80 | (length < 126 ? length : length < 65536 ? 126 : 127);
    if (head.length === 4) head.writeUInt16BE(length, 2);
    if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2);
    const mask = randomBytes(4);
    const masked = Buffer.allocUnsafe(length);
    for (let at = 0; at < length; at++) masked[at] = body[at] ^ mask[at & 3];
    this.socket?.write(Buffer.concat([head, mask, masked]));
  }

  /** @param {Buffer} data */
  take(data) {
    this.bytes = this.bytes.length ? Buffer.concat([this.bytes, data]) : data;
    for (;;) {
      const frame = this.frame();
      if (!frame) return;
      this.handle(frame.isLast, frame.opcode, frame.body);
    }
  }

  /** @returns {{ isLast: boolean, opcode: number, body: Buffer } | undefined} */
  frame() {
    const bytes = this.bytes;
    if (bytes.length < 2 || this.readyState === 3) return undefined;
    let length = bytes[1] & 0x7f;
    let at = 2;
    if (length === 126) {
      if (bytes.length < 4) return undefined;
      length = bytes.readUInt16BE(2);
      at = 4;
    } else if (length === 127) {
      if (bytes.length < 10) return undefined;
      length = Number(bytes.readBigUInt64BE(2));
      at = 10;
    }
    if (length + this.size > MAX_BYTES || bytes[1] & 0x80) {
      this.fail(1002, "a frame that is masked, or too long");
      return undefined;
    }
    if (bytes.length < at + length) return undefined;
    this.bytes = bytes.subarray(at + length);
    return { isLast: (bytes[0] & 0x80) !== 0, opcode: bytes[0] & 0x0f, body: bytes.subarray(at, at + length) };
  }

  /** @param {boolean} isLast @param {number} opcode @param {Buffer} body */
  handle(isLast, opcode, body) {
    if (opcode === PING) return this.write(PONG, body);
    if (opcode === PONG) return;
    if (opcode === CLOSE) {
      this.ending = body.length >= 2 ? [body.readUInt16BE(0), body.subarray(2).toString()] : [1005, ""];
      if (this.readyState === 1) this.write(CLOSE, body.subarray(0, 2));
      this.readyState = 2;
      this.socket?.end();
      return;
    }
    if (opcode !== TEXT && opcode !== CONTINUATION) return this.fail(1003, "a message that is no text");
    this.pieces.push(Buffer.from(body));
    this.size += body.length;
    if (!isLast) return;
    const text = Buffer.concat(this.pieces).toString();
    this.pieces = [];
    this.size = 0;
    this.onmessage?.({ data: text });
  }
}
