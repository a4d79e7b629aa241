// A fleet of its own, with real sandboxes, that leaves nothing behind.
import { spawn } from 'node:child_process';
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../..', import.meta.url));
// origin is where pages may come from.
const origin = 'https://app.example';
const startWithin = 120_000;
const stopWithin = 90_000;

// startFleet starts bin/toolfleet with the example tools, the tools of this
// folder, and an agent for the gateway. Ports and places are its own.
export async function startFleet(upstream) {
  const state = await mkdtemp(join(tmpdir(), 'toolfleet-conformance.'));
  try {
    const tools = join(state, 'specs');
    await cp(join(root, 'examples/tools'), tools, { recursive: true, filter: (from) => !from.endsWith('.go') });
    await cp(fileURLToPath(new URL('tools', import.meta.url)), join(tools, 'conformance'), { recursive: true });
    const agents = join(state, 'agents.yaml');
    await writeFile(agents, agentsFile(upstream));
    const child = spawn(join(root, 'bin/toolfleet'), [
      'up', '--state', state, '--tools', tools, '--images', join(root, 'bin/images'), '--agents', agents,
      '--cors-origin', origin, '--listen', '127.0.0.1:0', '--nats-listen', '127.0.0.1:0',
    ], { stdio: ['ignore', 'pipe', 'pipe'] });
    const fleet = { state, child, origin, url: '', log: '' };
    child.stderr.on('data', (chunk) => { fleet.log = (fleet.log + chunk).slice(-20_000); });
    fleet.ended = new Promise((resolve) => child.once('close', (code, signal) => resolve(signal ?? code)));
    fleet.url = await ready(fleet);
    return fleet;
  } catch (error) {
    await rm(state, { recursive: true, force: true });
    throw error;
  }
}

const agentsFile = (upstream) => `agents:\n  - name: upstream\n    url: ${upstream}\n`;

// ready waits for the line that says where the doors are.
async function ready(fleet) {
  let out = '';
  const line = new Promise((resolve) => fleet.child.stdout.on('data', (chunk) => {
    out += chunk;
    const found = out.match(/ready http=(\S+)/);
    if (found) resolve(found[1]);
  }));
  const url = await Promise.race([line, fleet.ended.then(() => null), after(startWithin)]);
  if (url) return url;
  fleet.child.kill('SIGKILL');
  await fleet.ended;
  throw new Error(`the fleet did not start:\n${fleet.log}`);
}

// stopFleet stops the fleet and returns what is wrong with its end.
export async function stopFleet(fleet) {
  fleet.child.kill('SIGTERM');
  const code = await Promise.race([fleet.ended, after(stopWithin)]);
  if (code === undefined) {
    fleet.child.kill('SIGKILL');
    await fleet.ended;
  }
  const faults = code === 0 ? [] : [`it ended with ${code ?? 'SIGKILL, because it did not end by itself'}`, fleet.log];
  faults.push(...await leftovers(fleet.state));
  await rm(fleet.state, { recursive: true, force: true });
  return faults;
}

// leftovers are processes and mounts that name the fleet's state directory.
async function leftovers(state) {
  const found = [];
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''); // it has ended since
    if (command.includes(`${state}/`)) found.push(`left behind: process ${pid} ${command.replaceAll('\0', ' ')}`);
  }
  const mounts = await readFile('/proc/self/mountinfo', 'utf8');
  return found.concat(mounts.split('\n').filter((line) => line.includes(`${state}/`)).map((line) => `left behind: mount ${line}`));
}

const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref());
