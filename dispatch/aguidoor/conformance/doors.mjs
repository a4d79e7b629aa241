// The two doors, made alike for the scenarios: a thread with a few tool calls
// in it. POST /agui/run finds them in the messages; behind the gateway the
// upstream agent makes them during the run.
import { nextId, run } from './client.mjs';

// called gives the calls of a scenario, [tool, arguments] each, their ids.
const called = (calls) => calls.map(([tool, args, more]) => ({ id: nextId('call'), tool, args: typeof args === 'string' ? args : JSON.stringify(args), ...more }));

const user = (script) => ({ id: nextId('user'), role: 'user', content: JSON.stringify(script) });

const direct = {
  name: '/agui/run',
  gateway: false,
  url: (fleet) => `${fleet.url}/agui/run`,
  thread(calls) {
    const made = called(calls);
    const parent = nextId('assistant');
    return {
      threadId: nextId('thread'), parent, calls: made,
      messages: [user({ does: 'call' }), assistant(parent, made)],
    };
  },
};

const gateway = {
  name: '/agui/agents',
  gateway: true,
  url: (fleet, agent = 'upstream') => `${fleet.url}/agui/agents/${agent}/run`,
  thread(calls, script = {}) {
    const made = called(calls);
    const parent = nextId('assistant');
    return {
      threadId: nextId('thread'), parent, calls: made,
      messages: [user({ does: 'call', parent, calls: made, ...script })],
    };
  },
};

export const doors = [direct, gateway];

// assistant is the message that carries calls in a history.
export const assistant = (id, calls) => ({
  id, role: 'assistant',
  toolCalls: calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.tool, arguments: c.args } })),
});

// through lets the client run the thread through a door.
export const through = (door, fleet, client, thread, more = {}) => run({ client, url: door.url(fleet, more.agent), thread, ...more });
