// The native API streams every call as a whole run. The same clients read it,
// with a request of its own making.
import { nextId, run } from './client.mjs';
import { json, metaError, sound } from './scenarios.mjs';

// follow lets the client read one call through /v1/calls.
function follow(t, tool, args, during) {
  const thread = { threadId: nextId('thread'), messages: [] };
  const toolCallId = nextId('call');
  const client = {
    ...t.client,
    Agent: class extends t.client.Agent {
      requestInit(input) {
        return {
          ...super.requestInit(input),
          body: JSON.stringify({ tool, arguments: args, toolCallId, threadId: input.threadId, runId: input.runId }),
        };
      }
    },
  };
  return run({ client, url: `${t.fleet.url}/v1/calls`, thread, during });
}

export const callScenarios = {
  async 'a call is a run'(t) {
    const done = await follow(t, 'word-count', { text: 'a b' });
    sound(t, done);
    t.check('it has a result', done.results.length === 1 && json(done.results[0].content)?.words === 2, JSON.stringify(done.results));
  },

  async 'a call that fails is a run that does not'(t) {
    const done = await follow(t, 'shell', { script: 'exit 3' });
    sound(t, done);
    t.check('it has an error result', done.last.type === 'RUN_FINISHED' && done.results[0]?.metadata[metaError].exitCode === 3, JSON.stringify(done.results));
  },

  async 'a cancelled call'(t) {
    let asked = null;
    const done = await follow(t, 'countdown', { from: 100 }, (event, seen) => {
      if (asked || event.type !== 'ACTIVITY_SNAPSHOT') return;
      const key = seen.of('ACTIVITY_SNAPSHOT')[0].messageId.replace(/^exec-/, '');
      asked = fetch(`${t.fleet.url}/v1/calls/${key}`, { method: 'DELETE' });
    });
    t.check('the cancel is taken', asked && (await asked).ok);
    sound(t, done);
    t.check('it says so', done.results[0]?.metadata[metaError].kind === 'cancelled', JSON.stringify(done.results));
  },
};
