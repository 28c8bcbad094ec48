// node-redlock as a peer: one answer per line of input, yes or no. Arguments: the ports of the servers.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import Redlock from "redlock";

const clients = process.argv.slice(2).map((port) => new Redis(Number(port), "127.0.0.1"));
const redlock = new Redlock(clients, { retryCount: 0 });
const held = new Map();

const verbs = {
  lock: async (key, ttl) => held.set(key, await redlock.lock(key, Number(ttl))),
  extend: async (key, ttl) => held.set(key, await held.get(key).extend(Number(ttl))),
  unlock: async (key) => held.get(key).unlock(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [verb, ...args] = line.split(" ");
  try {
    await verbs[verb](...args);
    console.log("yes");
  } catch (err) {
    if (err.name !== "LockError") console.error(err);
    console.log("no");
  }
}
clients.forEach((c) => c.disconnect());
