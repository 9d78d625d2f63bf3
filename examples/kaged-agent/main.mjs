// A kaged plugin that asks the plugins of a Hookgate gateway: JSON-RPC 2.0, a line for each message. Runs in Bun and in
// Node 20 or later. Standard error is the log.

// The version in kaged-plugin.yaml. kaged compares them.
const VERSION = "0.1.0";
// kaged gives a hook 10 s. The gateway gets less, so that it can say what it waited for.
const GATEWAY_MS = 8000;
const ANSWER_MS = 9000;
// kaged kills a plugin that writes a longer line.
const MAX_LINE_BYTES = 4 * 1024 * 1024;

const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;
const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
const NO_ANSWER = -32000;

class RpcError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

let config = { url: process.env.HOOKGATE_URL, token: process.env.HOOKGATE_TOKEN };

/** The contributions of the gateway's plugins at `hook`. */
async function contributions(hook, { _context = {} }, body) {
  if (!config.url || !config.token) throw new RpcError(NO_ANSWER, "`url` and `token` must be configured");
  const { project_id, agent_path, session_id, request_id } = _context;
  const headers = {
    authorization: `Bearer ${config.token}`,
    "content-type": "application/json",
    "hookgate-timeout-ms": String(GATEWAY_MS),
  };
  if (request_id) headers["x-request-id"] = request_id;
  const response = await fetch(`${config.url.replace(/\/+$/, "")}/v1/hooks/${hook}`, {
    method: "POST",
    headers,
    body: JSON.stringify({ context: { project_id, agent_path, session_id }, body }),
    redirect: "error", // the token is for the gateway only
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const answer = await response.json();
  if (!response.ok) throw new RpcError(NO_ANSWER, `${answer.code}: ${answer.detail} (request ${answer.request_id})`);
  return answer.contributions;
}

/** A list of messages. kaged's transcripts are texts, or messages already. */
const messages = (value) => (typeof value === "string" ? [{ role: "transcript", content: value }] : value);

/** What kaged takes from contributions: texts to put before the model, and texts that a compaction must keep. */
function taken(contributions) {
  const values = (kind) => contributions.filter((one) => one.kind === kind).map((one) => one.value);
  const inject = values("inject").map((value) => value.content);
  const retain = values("retain").flat();
  return {
    ...(retain.length > 0 && { retain }),
    ...(inject.length > 0 && { inject: inject.join("\n\n") }),
  };
}

function compaction({ messages_being_compacted, messages_remaining, strategy, trigger }) {
  if (messages_being_compacted === undefined) throw new RpcError(INVALID_PARAMS, "messages_being_compacted is missing");
  return {
    messages: messages(messages_being_compacted),
    messages_remaining: messages(messages_remaining),
    strategy,
    trigger,
  };
}

const METHODS = {
  initialize: () => ({
    name: "hookgate",
    version: VERSION,
    api_version: 1,
    methods: [],
    notifications: [],
    // Only the manifest names the gateway's host: it is the operator's choice.
    capabilities_used: [],
  }),
  initialized: () => null,
  ping: () => ({ status: "ok" }),
  "config.update": (params) => {
    // The merged configuration, as `config` or by itself.
    config = { ...config, ...(params.config ?? params) };
    return null;
  },
  "kaged.hook.on_session_start": async (params) => {
    const { inject } = taken(await contributions("session_start", params, {}));
    return inject === undefined ? {} : { inject };
  },
  "kaged.hook.on_session_idle": async (params) => {
    await contributions("session_idle", params, { messages: messages(params.transcript) });
    return null;
  },
  "kaged.hook.pre_compact": async (params) => taken(await contributions("before_compact", params, compaction(params))),
  "kaged.hook.post_compact": async (params) => taken(await contributions("after_compact", params, compaction(params))),
};

/** Writes the answer to the request `id`, and then calls `written`. A notification has no id, and gets no answer. */
function send(id, answer, written) {
  let line = JSON.stringify({ jsonrpc: "2.0", id, ...answer });
  if (Buffer.byteLength(line) >= MAX_LINE_BYTES) {
    const error = { code: NO_ANSWER, message: "the answer is larger than kaged accepts" };
    line = JSON.stringify({ jsonrpc: "2.0", id, error });
  }
  process.stdout.write(id === undefined ? "" : `${line}\n`, written);
}

function parse(line) {
  try {
    return JSON.parse(line);
  } catch {
    // Without the parser's message: it quotes the session.
    throw new RpcError(PARSE_ERROR, "not JSON");
  }
}

async function handle(line) {
  let id = null;
  let method;
  try {
    const message = parse(line);
    method = message?.method;
    if (typeof method !== "string") throw new RpcError(INVALID_REQUEST, "not a request");
    id = message.id;
    // Hooks that still wait for the gateway don't keep the process.
    if (method === "shutdown") return send(id, { result: { status: "ok" } }, () => process.exit(0));
    if (!Object.hasOwn(METHODS, method)) throw new RpcError(METHOD_NOT_FOUND, `there is no method ${method}`);
    send(id, { result: await METHODS[method](message.params ?? {}) });
  } catch (error) {
    const reason = error.cause ? `${error.message}: ${error.cause.message}` : error.message;
    console.error(`hookgate: ${method}: ${reason}`);
    send(id, { error: { code: error instanceof RpcError ? error.code : NO_ANSWER, message: reason } });
  }
}

// Lines end with LF only: `node:readline` also ends them within texts, at U+2028.
let rest = "";
process.stdin.setEncoding("utf8");
for await (const chunk of process.stdin) {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  // A ping is answered while a hook waits for the gateway.
  lines.forEach(handle);
}
