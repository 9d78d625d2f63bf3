#!/bin/sh
# The plugin @NAME@. Each line of standard input is a call, a JSON object. The reply to it is one line of standard output,
# with the call's request_id. Write anything else to standard error: the runner logs it.
while IFS= read -r call; do
  printf '%s' "$call" | jq -c '
    .payload.tool_name as $tool
    | (if any(.tenant_config.refused_tools[]?; . == $tool) then
        {cancel: {code: "TOOL_NOT_ALLOWED", message: "Agents may not use \($tool)."}}
      else
        {continue: {}}
      end) + {request_id: .context.request_id}' || exit 1
done
