// Clients of stompjs that do what a test tells them, one action at a time; the same in Node and in a page.
//
// Law: needs `StompJs` and `WebSocket`, and knows nothing of tests. Every action waits until what it asks for is so.
// Bodies cross the border to the test in base64.
"use strict";

(() => {
  const clients = new Map();
  // Before a page has put its timers to sleep.
  const setTimeoutAwake = globalThis.setTimeout.bind(globalThis);
  const clearTimeoutAwake = globalThis.clearTimeout.bind(globalThis);

  const toBytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const fromBytes = (bytes) => {
    let text = "";
    for (let start = 0; start < bytes.length; start += 8192) {
      text += String.fromCharCode(...bytes.subarray(start, start + 8192));
    }
    return btoa(text);
  };

  class Told {
    constructor(options) {
      this.messages = [];
      this.receipts = [];
      this.errors = [];
      this.connections = 0;
      this.closings = 0;
      // Of WebSocket messages.
      this.sent = { text: 0, binary: 0, beats: 0 };
      this.received = { text: 0, binary: 0, beats: 0 };
      this.waiting = new Set();
      this.client = new StompJs.Client({
        webSocketFactory: () => this.open(options.url),
        connectHeaders: options.headers,
        heartbeatOutgoing: options.beat_ms,
        heartbeatIncoming: options.beat_ms,
        reconnectDelay: options.reconnect_ms,
        forceBinaryWSFrames: options.is_binary,
        // Of itself it gives up one heart-beat after one that is late, and a busy machine stops for longer.
        heartbeatToleranceMultiplier: 20,
        onConnect: () => {
          this.connections += 1;
          for (const [destination, headers] of options.subscriptions) this.subscribe(destination, headers);
          this.changed();
        },
        onStompError: (frame) => this.add(this.errors, frame.headers["message"]),
        onUnhandledReceipt: (frame) => this.add(this.receipts, frame.headers["receipt-id"]),
        onWebSocketClose: () => {
          this.closings += 1;
          this.changed();
        },
      });
    }

    open(url) {
      const socket = new WebSocket(url, ["v12.stomp"]);
      const count = (counts, data) => {
        if ((data.length ?? data.byteLength) === 1) counts.beats += 1;
        else counts[typeof data === "string" ? "text" : "binary"] += 1;
        this.changed();
      };
      socket.addEventListener("message", (event) => count(this.received, event.data));
      const send = socket.send.bind(socket);
      socket.send = (data) => {
        count(this.sent, data);
        send(data);
      };
      return socket;
    }

    subscribe(destination, headers) {
      this.client.subscribe(destination, (message) => this.add(this.messages, message), headers);
    }

    add(list, entry) {
      list.push(entry);
      this.changed();
    }

    changed() {
      for (const look of this.waiting) look();
    }

    until(isSo, what, timeoutMs) {
      return new Promise((resolve, reject) => {
        const timer = setTimeoutAwake(() => {
          this.waiting.delete(look);
          reject(new Error(`in vain: ${what}; ${JSON.stringify(this.state())}`));
        }, timeoutMs);
        const look = () => {
          if (!isSo()) return;
          this.waiting.delete(look);
          clearTimeoutAwake(timer);
          resolve();
        };
        this.waiting.add(look);
        look();
      });
    }

    state() {
      const { sent, received, receipts, errors, connections, closings } = this;
      return { sent, received, receipts, errors, connections, closings, is_connected: this.client.connected };
    }
  }

  const actions = {
    activate: (told) => told.client.activate(),
    deactivate: (told) => told.client.deactivate(),
    subscribe: (told, { destination, headers }) => told.subscribe(destination, headers),
    publish: (told, { destination, text, bytes, headers }) =>
      told.client.publish({
        destination,
        headers,
        ...(bytes === null ? { body: text } : { binaryBody: toBytes(bytes) }),
      }),
    ack: (told, { number, headers }) => told.messages[number].ack(headers),
    nack: (told, { number, headers }) => told.messages[number].nack(headers),
    wait: (told, { name, number, timeout_ms }) => {
      const looks = {
        connections: () => told.connections >= number && told.client.connected,
        messages: () => told.messages.length >= number,
        receipts: () => told.receipts.length >= number,
        errors: () => told.errors.length >= number,
        closings: () => told.closings >= number,
        beats_sent: () => told.sent.beats >= number,
        beats_received: () => told.received.beats >= number,
      };
      return told.until(looks[name], `${number} ${name}`, timeout_ms);
    },
    state: (told) => told.state(),
    messages: (told) =>
      told.messages.map(({ headers, binaryBody }) => ({ headers, body: fromBytes(binaryBody) })),
  };

  // What the browser does to a tab in the background, only worse: no timer runs at all.
  globalThis.putTimersToSleep = () => {
    globalThis.setInterval = () => 0;
    globalThis.setTimeout = () => 0;
  };

  globalThis.tell = async ({ client, action, options }) => {
    if (action === "open") clients.set(client, new Told(options));
    else return (await actions[action](clients.get(client), options)) ?? null;
    return null;
  };
})();
