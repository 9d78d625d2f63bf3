// A provider of models that isn't this project's own: aimock. It prints its port, and ends with its standard input.

import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ host: "127.0.0.1", port: 0, strict: true });

// The model that the clients here need: it calls two tools, and then says what the last one has told.
const toolCalls = ["shell_exec", "fs_read"].map((name) => ({ id: `call_${name}`, name, arguments: "{}" }));
const told = ({ messages }) => ({ content: `the notes are ${messages.at(-1).content}` });
mock.on({ userMessage: "read the notes", hasToolResult: false }, { content: "I look.", toolCalls });
mock.on({ userMessage: "read the notes", hasToolResult: true }, told);
mock.on({ userMessage: "bomb" }, { content: "with a fuse" });
mock.onEmbedding(/./, { embedding: [0.5, -0.25] });
// Its streams end in the middle of the answer.
const cut = { chunkSize: 9, latency: 1, truncateAfterChunks: 7 };
mock.on({ userMessage: "break off" }, { content: "a secret ".repeat(9) }, cut);

// aimock doesn't count tokens for Anthropic's clients.
mock.mount("/v1/messages/count_tokens", {
  async handleRequest(request, response) {
    const { method, url: path } = request;
    const body = JSON.parse((await request.toArray()).join(""));
    mock.journal.add({ method, path, headers: {}, body, response: { status: 200, fixture: null } });
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ input_tokens: JSON.stringify(body.messages).length }));
    return true;
  },
});

await mock.start();
console.log(mock.port);
process.stdin.on("end", () => process.exit()).resume();
