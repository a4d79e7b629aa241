// The shapes of AG-UI 1.0, as far as a fleet can show them: which members an
// event may have, which it must have, and of what type. The official client
// does not notice an unknown member in every place and takes many a wrong one;
// this list is written from the specification, not from our own code.

const string = (v) => typeof v === 'string';
const id = (v) => string(v) && v !== '';
const integer = (v) => Number.isSafeInteger(v);
const boolean = (v) => typeof v === 'boolean';
const object = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
const some = (v) => v !== null && v !== undefined;
const any = (v) => v !== undefined;
const one = (...values) => (v) => values.includes(v);
const list = (of) => (v, at) => (Array.isArray(v) ? v.flatMap((e, i) => ask(of, e, `${at}[${i}]`)) : [`${at} is no list`]);

// A shape maps names to rules; a name that ends in "?" may be absent. Absent is
// absent: null is a value, and the rules refuse it where it is none.
const shape = (members) => (value, at) => {
  if (!object(value)) return [`${at} is no object`];
  const rules = new Map(Object.entries(members).map(([name, rule]) => [name.replace(/\?$/, ''), { rule, optional: name.endsWith('?') }]));
  const faults = Object.keys(value).filter((name) => !rules.has(name)).map((name) => `${at}.${name} is unknown to AG-UI`);
  for (const [name, { rule, optional }] of rules) {
    if (!(name in value)) {
      if (!optional) faults.push(`${at}.${name} is missing`);
      continue;
    }
    faults.push(...ask(rule, value[name], `${at}.${name}`));
  }
  return faults;
};

// variant picks the shape by the value's own discriminator.
const variant = (by, shapes) => (value, at) => {
  if (!object(value)) return [`${at} is no object`];
  const found = Object.hasOwn(shapes, value[by]) && shapes[value[by]];
  return found ? ask(found, value, at) : [`${at}.${by} ${JSON.stringify(value[by])} is unknown to AG-UI`];
};

// A rule answers with a list of faults, or with whether the value will do.
function ask(rule, value, at) {
  const answer = rule(value, at);
  if (Array.isArray(answer)) return answer;
  return answer ? [] : [`${at} must not be ${JSON.stringify(value)?.slice(0, 80)}`];
}

const source = variant('type', {
  data: shape({ type: string, value: string, mimeType: string }),
  url: shape({ type: string, value: string, 'mimeType?': string }),
  file: shape({ type: string, value: string, 'provider?': string, 'mimeType?': string }),
});
const media = shape({ type: string, source, 'id?': string, 'metadata?': some });
const part = variant('type', {
  text: shape({ type: string, text: string, 'id?': string, 'metadata?': some }),
  image: media, audio: media, video: media, document: media,
});
const content = (v, at) => (string(v) ? [] : list(part)(v, at));
const interrupt = shape({
  id, reason: string, 'message?': string, 'toolCallId?': id, 'responseSchema?': object, 'expiresAt?': string, 'metadata?': object, 'subagentRunId?': id,
});
const outcome = variant('type', {
  success: shape({ type: string, 'pendingToolCallIds?': list(id) }),
  interrupt: shape({ type: string, interrupts: list(interrupt) }),
  cancelled: shape({ type: string }),
});
const operation = (v, at) => (object(v) && one('add', 'remove', 'replace', 'move', 'copy', 'test')(v.op) && string(v.path) ? [] : [`${at} is no JSON Patch operation`]);

const base = { type: string, 'timestamp?': integer, 'rawEvent?': some, 'metadata?': object };
const run = (members) => shape({ ...base, ...members });
const event = (members) => shape({ ...base, 'subagentRunId?': id, ...members });

const events = variant('type', {
  RUN_STARTED: run({ threadId: id, runId: id, protocolVersion: one('1.0'), 'parentRunId?': id, 'input?': object }),
  RUN_FINISHED: run({ threadId: id, runId: id, 'result?': some, 'outcome?': outcome, 'usage?': list(object) }),
  RUN_ERROR: run({ message: string, 'code?': string, 'usage?': list(object) }),
  STEP_STARTED: event({ stepName: string }),
  STEP_FINISHED: event({ stepName: string }),
  TEXT_MESSAGE_START: event({ messageId: id, 'role?': string, 'name?': string }),
  TEXT_MESSAGE_CONTENT: event({ messageId: id, delta: string }),
  TEXT_MESSAGE_END: event({ messageId: id }),
  TOOL_CALL_START: event({ toolCallId: id, toolCallName: id, 'parentMessageId?': id }),
  TOOL_CALL_ARGS: event({ toolCallId: id, delta: string }),
  TOOL_CALL_END: event({ toolCallId: id }),
  TOOL_CALL_RESULT: event({ messageId: id, toolCallId: id, content, 'role?': one('tool') }),
  STATE_SNAPSHOT: event({ snapshot: any }),
  STATE_DELTA: event({ delta: list(operation) }),
  ACTIVITY_SNAPSHOT: event({ messageId: id, activityType: id, content: object, 'replace?': boolean }),
  ACTIVITY_DELTA: event({ messageId: id, activityType: id, patch: list(operation) }),
  CUSTOM: event({ name: id, value: any }),
  RAW: event({ event: any, 'source?': string }),
});

// misshapen lists what is wrong with the shape of one event. An event type
// that no scenario lets through is as unknown as a made-up one.
export const misshapen = (value) => ask(events, value, object(value) && string(value.type) ? value.type : 'event');
