// The two clients, and one run of one of them with everything that can be seen
// of it.
import { HttpAgent as Agent1 } from 'ag-ui-client-1';
import { HttpAgent as Agent0 } from 'ag-ui-client-0';

import { disorder } from './sequence.mjs';
import { misshapen } from './shape.mjs';
import { tapped } from './wire.mjs';

// A client of the generation before 1.0 declares no protocolVersion. It rejects
// a run for a list of parts, for pendingToolCallIds and for an unknown event.
export const clients = [
  { name: '1.0.0', Agent: Agent1, legacy: false },
  { name: '0.0.59', Agent: Agent0, legacy: true },
];

// What the clients complain about goes to the console, and what nobody waited
// for to the process. Both are collected until somebody takes them.
let complaints = [];
for (const method of ['debug', 'log', 'info', 'warn', 'error']) {
  const real = console[method].bind(console);
  console[method] = (...args) => {
    if (/^\[ag-ui\]/.test(String(args[0]))) complaints.push(args.map(String).join(' '));
    else if (method === 'warn' || method === 'error') complaints.push(`console.${method}: ${args.map(String).join(' ')}`);
    else real(...args);
  };
}
process.on('unhandledRejection', (reason) => complaints.push(`unhandled rejection: ${reason}`));

// takeComplaints returns what was complained about since it was last asked. An
// unhandled rejection is told after the microtasks of its turn.
export async function takeComplaints() {
  await new Promise((resolve) => setImmediate(resolve));
  const taken = complaints;
  complaints = [];
  return taken;
}

// A run that takes longer than this does not end by itself.
const patience = 120_000;

let runs = 0;

// nextId makes ids that no other thread or run of this process has.
export const nextId = (what) => `${what}-${process.pid}-${++runs}`;

// run lets a client run an agent once, and returns what it saw.
//
//   client    one of clients
//   url       the door
//   thread    {threadId, messages}: what the application holds
//   tools     the tools that the application advertises
//   during    called with each event as it comes off the wire
export async function run({ client, url, thread, tools = [], during = () => {} }) {
  const frames = [];
  const seen = {};
  const runId = nextId('run');
  const input = { threadId: thread.threadId, runId, messages: structuredClone(thread.messages) };
  const agent = new client.Agent({ url, threadId: thread.threadId, initialMessages: structuredClone(thread.messages), fetch: tapped(frames, seen) });
  const done = {
    client, input, agent, frames, seen, runId, late: false, error: null, finished: null, runError: null, delivered: [],
    get events() { return frames.filter((f) => f.event).map((f) => f.event); },
    of(type) { return this.events.filter((e) => e.type === type); },
    get results() { return this.of('TOOL_CALL_RESULT'); },
    result(id) { return this.results.find((e) => e.toolCallId === id); },
    get last() { return this.events.at(-1); },
    // messages are what the client holds afterwards.
    get messages() { return agent.messages; },
  };
  await takeComplaints();
  const limit = setTimeout(() => {
    done.late = true;
    agent.abortRun();
  }, patience);
  try {
    await agent.runAgent({ runId, tools }, {
      onEvent: ({ event }) => {
        done.delivered.push(event.type);
        during(event, done);
      },
      onRunFinishedEvent: (params) => { done.finished = params; },
      onRunErrorEvent: ({ event }) => { done.runError = event; },
    });
  } catch (error) {
    done.error = error;
  } finally {
    clearTimeout(limit);
  }
  done.complaints = await takeComplaints();
  return done;
}

// unsound lists everything that no run may have, whatever it is about.
export function unsound(done) {
  const faults = [...done.complaints];
  if (done.late) faults.push(`the run does not end within ${patience / 1000} s`);
  if (done.error) faults.push(`the client rejects the run: ${done.error.message}`);
  if (done.seen.status !== 200) faults.push(`HTTP status ${done.seen.status}`);
  if (done.seen.type?.split(';')[0] !== 'text/event-stream') faults.push(`content type ${done.seen.type}`);
  for (const [n, f] of done.frames.entries()) {
    if (f.fault) faults.push(`frame ${n + 1}: ${f.fault}`);
    else faults.push(...misshapen(f.event).map((what) => `event ${n + 1}: ${what}`));
  }
  faults.push(...disorder(done.events, done.input));
  if (!done.finished && !done.runError) faults.push('the client has seen no terminal event');
  if (done.delivered.length !== done.events.length) faults.push(`${done.events.length} events were sent, and ${done.delivered.length} reached the application`);
  if (done.client.legacy) {
    if (done.results.some((e) => typeof e.content !== 'string')) faults.push('a result of parts for a client that knows strings only');
    if (done.last?.outcome?.pendingToolCallIds || done.last?.outcome?.type === 'cancelled') faults.push('an outcome that the client does not know');
  }
  return faults;
}
