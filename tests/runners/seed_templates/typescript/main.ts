import * as readline from "readline";

async function run(arguments: Record<string, unknown>) {
  // 实现逻辑
  return { output: "结果", error: "" };
}

const rl = readline.createInterface({ input: process.stdin });
rl.once("line", async (line) => {
  const req = JSON.parse(line);
  const result = await run(req.arguments ?? {});
  console.log(JSON.stringify(result));
  process.exit(0);
});
