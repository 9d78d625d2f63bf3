"""Agents of two tenants at work: model calls, allowed and refused tools, results, answers. Standard library alone.

    HOOKGATE_JWT_SECRET=... CALLS_PER_SECOND=20 python load.py http://gateway:8080 [CALLS]

Prints a line of counts by status every 5 s, and at the end. Without CALLS it ends with SIGTERM.
"""
import base64, collections, hashlib, hmac, json, os, random, signal, sys, time, urllib.error, urllib.request

CALLS = (
    ("before-llm-request", {"text": "Please write to ada@example.com that her refund is on its way."}),
    ("before-llm-request", {"text": "Which of our parcels are late?"}),
    ("before-tool-call", {"tool_name": "catalog.find", "args": {"sku": 4711}}),
    ("before-tool-call", {"tool_name": "orders.refund", "args": {"order": 7}}),
    ("before-tool-call", {"tool_name": "shell.exec", "args": {"cmd": "ls"}}),
    ("after-tool-result", {"tool_name": "catalog.find", "result": {"in_stock": True}, "success": True}),
    ("before-response", {"content": "It is on its way; write to help@example.com if it isn't there by Monday."}),
)


def token(tenant):
    encoded = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
    now = int(time.time())
    claims = {"iss": "agents", "aud": "hookgate", "sub": "load", "tenant_id": tenant, "scope": "hookgate:invoke", "exp": now + 3600}
    signed = b".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    key = os.environ["HOOKGATE_JWT_SECRET"].encode()
    return (signed + b"." + encoded(hmac.new(key, signed, hashlib.sha256).digest())).decode(), now + 3000


def call(base, point, payload, bearer):
    headers = {"content-type": "application/json", "authorization": f"Bearer {bearer}"}
    request = urllib.request.Request(f"{base}/v1/{point}", json.dumps({"payload": payload}).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as answer:
        return str(answer.code)
    except OSError:
        return "no answer"


def main(base, calls=0):
    pause = 1 / float(os.environ.get("CALLS_PER_SECOND", "20"))
    tokens, statuses, told = {}, collections.Counter(), time.monotonic()
    say = lambda: print(" ".join(f"{status}: {count}" for status, count in sorted(statuses.items())), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(say()))
    made = 0
    while calls == 0 or made < calls:
        tenant = random.choice(("acme", "globex"))
        if tokens.get(tenant, ("", 0))[1] < time.time():
            tokens[tenant] = token(tenant)
        point, payload = CALLS[made % len(CALLS)]
        statuses[call(base, point, payload, tokens[tenant][0])] += 1
        made += 1
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say()
        time.sleep(pause)
    say()


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), *map(int, sys.argv[2:3]))
