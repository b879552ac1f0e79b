// A call that kills the services which run it, in Node and in a browser: `run(module, options)` gives a line for each try,
// until it is stopped, and for one of another call.
export async function run(m, options) {
  const client = new m.Client(options);
  const lines = [];
  const attempt = async (args) => {
    try {
      lines.push(`answer ${await client.call("compute", "divide", args, { timeout: 60 })}`);
    } catch (error) {
      const kinds = [error instanceof m.CallQuarantined, error instanceof m.CallCancelled];
      lines.push(`${error.name} ${kinds.join(" ")} ${error.details.started} ${error.message}`);
    }
  };
  do {
    await attempt({ b: 0 });
  } while (lines.length < 4 && !lines.at(-1).startsWith("CallQuarantined"));
  await attempt({ b: 2 });
  client.close();
  return lines;
}
