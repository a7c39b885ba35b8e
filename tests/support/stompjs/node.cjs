// Node's end: a line of JSON in is an action, a line out its outcome.
"use strict";

globalThis.StompJs = require("@stomp/stompjs");
globalThis.WebSocket = require("ws").WebSocket;
require("./clients.js");

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", async (line) => {
    let outcome;
    try {
      outcome = { result: await globalThis.tell(JSON.parse(line)) };
    } catch (error) {
      outcome = { error: String(error) };
    }
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
  })
  .on("close", () => process.exit(0));
