// Whether the checks notice anything: a server that is wrong in one way at a
// time, and the one that is right.
import { createServer } from 'node:http';

import { clients, nextId, run, unsound } from './client.mjs';

const frame = (event) => `data: ${JSON.stringify(event)}\n\n`;

// A body is made of the ids of the run's input.
const started = (ids) => frame({ type: 'RUN_STARTED', ...ids, protocolVersion: '1.0' });
const finished = (ids, more) => frame({ type: 'RUN_FINISHED', ...ids, ...more });
const result = (more) => frame({ type: 'TOOL_CALL_RESULT', messageId: 'r', toolCallId: 'c', content: 'x', ...more });

const bodies = {
  right: (ids) => started(ids) + result() + finished(ids),
  'an unknown member': (ids) => started(ids) + result({ isError: true }) + finished(ids),
  'an unknown member deep inside': (ids) => started(ids) + result({ content: [{ type: 'text', text: 'x', name: 'n' }] }) + finished(ids),
  'an absent member that is null': (ids) => started(ids) + result({ role: null }) + finished(ids),
  'an unknown event': (ids) => started(ids) + frame({ type: 'TOOL_CALL_PROGRESS' }) + finished(ids),
  'two results': (ids) => started(ids) + result() + result({ messageId: 's' }) + finished(ids),
  'a result for nobody': (ids) => started(ids) + result({ toolCallId: 'd' }) + finished(ids),
  'a message id that is taken': (ids) => started(ids) + result({ messageId: 'm' }) + finished(ids),
  'no end': (ids) => started(ids) + result(),
  'the ids of another run': (ids) => started(ids) + finished({ ...ids, runId: 'other' }),
  'a wrong list of pending calls': (ids) => started(ids) + finished(ids, { outcome: { type: 'success', pendingToolCallIds: ['c'] } }),
  'an event after the end': (ids) => started(ids) + finished(ids) + result(),
  'a carriage return': (ids) => started(ids) + finished(ids).replaceAll('\n', '\r\n'),
  'a frame that is cut': (ids) => started(ids) + finished(ids) + 'data: {"type"',
  'no JSON': (ids) => `${started(ids)}data: {oops\n\n`,
  'an HTTP error': () => null,
  'a connection that breaks': (ids) => [started(ids)],
};

// blind lists the faults that a client's runs have and the checks miss.
export async function blind() {
  let body;
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const { threadId, runId } = JSON.parse(text);
    const made = body({ threadId, runId });
    if (made === null) return response.writeHead(503).end();
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    if (!Array.isArray(made)) return response.end(made);
    response.write(made[0], () => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const messages = [{ id: 'm', role: 'assistant', toolCalls: [{ id: 'c', type: 'function', function: { name: 'n', arguments: '{}' } }] }];
  const missed = [];
  try {
    for (const client of clients) {
      for (const [fault, make] of Object.entries(bodies)) {
        body = make;
        const done = await run({ client, url: `http://127.0.0.1:${server.address().port}/`, thread: { threadId: nextId('thread'), messages } });
        const found = unsound(done);
        if ((fault === 'right') !== (found.length === 0)) missed.push(`${client.name}: ${fault}: ${found.join('; ') || 'nothing found'}`);
      }
    }
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  return missed;
}
