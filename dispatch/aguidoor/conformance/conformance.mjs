// Runs the real AG-UI clients against a running fleet with real sandboxes,
// through both doors, and through the streams of the native API. Prints one
// line for each check; exits with 1 when one of them failed.
//
//   node conformance.mjs [word...]   only scenarios whose title has every word
import { callScenarios } from './calls.mjs';
import { clients, takeComplaints } from './client.mjs';
import { doors } from './doors.mjs';
import { startFleet, stopFleet } from './fleet.mjs';
import { gatewayScenarios } from './gateway.mjs';
import { check, summary } from './report.mjs';
import { scenarios } from './scenarios.mjs';
import { blind } from './selftest.mjs';
import { startUpstream } from './upstream.mjs';
import { recorded, verdicts } from './verdicts.mjs';

const words = process.argv.slice(2);

const upstream = await startUpstream();
const fleet = await startFleet(upstream.url).catch(async (error) => {
  console.log(`conformance: ${error.message}`);
  process.exit(1);
});
// A second signal finds no handler, and ends the process.
let interrupted = false;
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => { interrupted = true; });

async function all(client, door, group) {
  for (const [title, scenario] of Object.entries(group)) {
    const where = `${client.name} ${door.name}: ${title}`;
    if (interrupted || !words.every((word) => where.includes(word))) continue;
    const t = { client, door, fleet, upstream, check: (what, holds, why) => check(where, what, holds, why) };
    try {
      await scenario(t);
    } catch (error) {
      check(where, 'can be checked to its end', false, error.stack);
    }
    // What one scenario left behind is not the next one's.
    const late = await takeComplaints();
    if (late.length > 0) check(where, 'leaves nobody to complain', false, late);
  }
}

try {
  for (const client of clients) {
    for (const door of doors) await all(client, door, scenarios);
    await all(client, doors[1], gatewayScenarios);
    await all(client, { name: '/v1/calls' }, callScenarios);
  }
  if (words.length === 0) {
    const missed = await blind();
    check('checks', 'they notice what is wrong', missed.length === 0, missed);
    check('verdicts', 'what is recorded of the client for package agui is true', await recorded() === await verdicts(), 'record it again: node verdicts.mjs');
  }
} finally {
  const faults = await stopFleet(fleet);
  await upstream.stop();
  check('fleet', 'it stops, and leaves nothing behind', faults.length === 0, faults);
}
if (interrupted) check('conformance', 'it ran to its end', false, 'it was interrupted');
process.exitCode = summary() ? 0 : 1;
