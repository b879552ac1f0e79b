// Loops over a subscription without a handler for errors, as most programs do, and closes the client.
const m = await import(`${process.env.CLIENT}/rpcmq.js`);
const client = new m.Client({ url: process.env.URL, token: process.env.TOKEN });
const subscription = await client.subscribe("disk.#");
(async () => {
  for await (const { payload } of subscription) {
    console.log(`event ${payload}`);
    client.close();
  }
  console.log("the loop has ended");
})();
await client.publish("disk.a", 1);
