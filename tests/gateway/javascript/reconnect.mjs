// Told by lines on standard input what to do, so that a test can take the gateway away in between.
import { createInterface } from "node:readline";

const m = await import(`${process.env.CLIENT}/rpcmq.js`);
const client = new m.Client({ url: process.env.URL, token: process.env.TOKEN, timeout: 20 });
client.addEventListener("open", () => console.log("open"));
client.addEventListener("close", (event) => console.log(`close ${event.detail.code}`));
let subscription;
const tell = (name, promise) => promise.then((value) => console.log(`${name} ${JSON.stringify(value)}`), (error) => console.log(`${name} ${error.name}`));
for await (const line of createInterface({ input: process.stdin })) {
  const [word, name] = line.split(" ");
  if (word === "subscribe") {
    subscription = await client.subscribe("disk.#");
    console.log("subscribed");
    (async () => { for await (const event of subscription) console.log(`event ${event.payload} gaps ${subscription.gaps}`); })();
  } else if (word === "plain") tell("plain", client.call("demo", "wait", { seconds: 3, name }));
  else if (word === "again") tell("again", client.call("demo", "wait", { seconds: 3, name }, { idempotent: true }));
  else if (word === "ping") tell("ping", client.call("demo", "echo", {}).then((value) => value.args));
  else if (word === "quit") break;
}
client.close();
