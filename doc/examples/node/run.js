// Runs a command in a sandbox, by the module of nsbox.c:
//
//     node run.js COMMAND [ARGUMENT...]
//
// It sees the system's programs and nothing of yours, has no network, and is ended after ten seconds.

const { runSync } = require(process.env.NSBOX_MODULE || './nsbox.node');

if (process.argv.length < 3) {
  console.error('usage: node run.js COMMAND [ARGUMENT...]');
  process.exit(2);
}
try {
  const { status, output, error } = runSync(JSON.stringify({ version: 1 }), process.argv.slice(2), 10000);
  process.stdout.write(output);
  process.stderr.write(error);
  process.exitCode = status;
} catch (problem) {
  console.error(`run.js: ${problem.message}`);
  process.exitCode = 125;
}
