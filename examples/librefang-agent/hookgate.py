#!/usr/bin/env python3
"""A LibreFang plugin that asks the plugins of a Hookgate gateway.

LibreFang starts it for each call of a hook, with the call as a line on standard input. The reply is a line on standard
output. Standard error is the log.
"""

import concurrent.futures
import http.client
import json
import os
import sys
import urllib.parse

# The hook of the gateway for each hook of LibreFang, but for `transform_tool_result`.
HOOKS = {
    "bootstrap": "agent_start",
    "ingest": "recall",
    "assemble": "assemble",
    "compact": "before_compact",
    "after_turn": "turn_end",
    "prepare_subagent": "subagent_start",
    "merge_subagent": "subagent_end",
    "on_event": "event",
}
WITHHELD = "This result is withheld, because Hookgate gave no decision about it."
# A longer reply is an error for LibreFang, and then a tool's own result passes.
MAX_REPLY_BYTES = 4 << 20


class NoDecision(Exception):
    """The gateway gave none. The message is for the log."""


def post(path, body, seconds):
    """The status, the headers and the members of the gateway's answer."""
    url = urllib.parse.urlsplit(os.environ["HOOKGATE_URL"])
    # Unlike urllib.request, http.client follows no redirect, so the token reaches the gateway only.
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if url.scheme not in kinds:
        raise NoDecision("HOOKGATE_URL must begin with http:// or https://")
    connection = kinds[url.scheme](url.hostname, url.port, timeout=seconds)
    headers = {
        "authorization": "Bearer " + os.environ["HOOKGATE_TOKEN"].strip(),
        "content-type": "application/json",
        "hookgate-timeout-ms": str(int(seconds * 1000)),
    }
    connection.request("POST", url.path.rstrip("/") + path, json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, json.loads(answer.read())


def no_decision(problem):
    return NoDecision("{code}: {detail} (request {request_id})".format_map(problem))


def context(call):
    members = {
        "agent_id": call.get("agent_id") or call.get("parent_id"),
        "session_id": call.get("session_id"),
        "user_id": call.get("peer_id"),
        "model": call.get("model"),
    }
    return {name: value for name, value in members.items() if value}


def contribute(name, call, seconds):
    """The reply with what the gateway's plugins contribute."""
    body = {member: value for member, value in call.items() if member not in ("type", "agent_id", "event")}
    if "child_id" in call:
        body["child"] = call["child_id"]
    if name == "on_event":
        event = call["event"]
        body.update(kind=event["name"], data=event.get("payload"), source_plugin=event.get("source_plugin"))
    status, _, answer = post("/v1/hooks/" + HOOKS[name], {"context": context(call), "body": body}, seconds)
    if status != 200:
        raise no_decision(answer)
    values = {"memory": [], "messages": [], "event": []}
    for contribution in answer["contributions"]:
        values.setdefault(contribution["kind"], []).append(contribution["value"])
    reply = {"type": name + "_result", "memories": values["memory"]}
    reply["events"] = [{"name": event["kind"], "payload": event.get("data")} for event in values["event"]]
    if values["messages"]:
        reply["messages"] = values["messages"][0]
    return reply


def with_result(call, result):
    """The reply that replaces a tool's result, in the format of the call."""
    if "result" in call:
        return {"type": "transformed", "result": result}
    return {"content": result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)}


def transform_tool_result(call, seconds):
    payload = {
        "tool_name": call["tool_name"],
        "args": call["args"] if "args" in call else call.get("input"),
        "result": call["result"] if "result" in call else call["content"],
        "success": call.get("status", "success") == "success",
        "call_id": call.get("tool_use_id"),
    }
    asked = {"context": context(call), "payload": payload}
    status, headers, answer = post("/v1/after-tool-result", asked, seconds)
    # Where these differ, a proxy changed the answer, and there is no decision.
    decisions = headers["hookgate-decision"], answer.get("decision")
    if status == 200 and decisions == ("continue", "continue"):
        # LibreFang asks no other plugin after a reply with a result.
        return with_result(call, answer["payload"]["result"]) if answer["modified"] else {"type": "skip"}
    if 400 <= status < 500 and decisions == ("block", "block"):
        return with_result(call, answer["block"]["message"])
    raise no_decision(answer)


def reply_line(name, call, seconds):
    reply = contribute(name, call, seconds) if name in HOOKS else transform_tool_result(call, seconds)
    line = json.dumps(reply, ensure_ascii=False).encode()
    if len(line) >= MAX_REPLY_BYTES:
        raise NoDecision("the reply is larger than LibreFang accepts")
    return line


def main():
    name = "transform_tool_result"
    try:
        call = json.loads(sys.stdin.buffer.readline())
        # A call of `on_event` has no type.
        name = call.get("type") or ("on_event" if "event" in call else name)
        seconds = float(os.environ["HOOKGATE_TIMEOUT_SECS"])
        # The timeout of a connection starts anew with each byte. This one is for the whole call.
        replies = concurrent.futures.ThreadPoolExecutor()
        line = replies.submit(reply_line, name, call, seconds).result(seconds + 1)
    except Exception as reason:
        print(f"hookgate: {name}: {type(reason).__name__}: {reason}", file=sys.stderr)
        # When a hook fails, LibreFang goes on with the tool's own result. So the hook replies, in both formats.
        withheld = {"type": "transformed", "result": WITHHELD, "content": WITHHELD}
        line = json.dumps({"type": "ok"} if name in HOOKS else withheld).encode()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()
    # The other thread may still wait for the gateway.
    os._exit(0)


main()
