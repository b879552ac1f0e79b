// Runs SUITE, or the suite, in Node: URL and TOKEN are in the environment, the folder of rpcmq.js in CLIENT.
const { run } = await import(process.env.SUITE ?? "./suite.mjs");
const m = await import(`${process.env.CLIENT}/rpcmq.js`);
for (const line of await run(m, { url: process.env.URL, token: process.env.TOKEN })) console.log(line);
