// A call that kills the services which run it, in Node and in a browser: `run(module, options)` gives a line for each try.
export async function run(m, options) {
  const client = new m.Client(options);
  const lines = [];
  for (let number = 0; number < 4; number++) {
    const args = number < 3 ? { b: 0 } : { b: 2 };
    try {
      lines.push(`answer ${await client.call("compute", "divide", args, { timeout: 60 })}`);
    } catch (error) {
      const kinds = [error instanceof m.CallQuarantined, error instanceof m.CallCancelled];
      lines.push(`${error.name} ${kinds.join(" ")} ${error.details.started} ${error.message}`);
    }
  }
  client.close();
  return lines;
}
