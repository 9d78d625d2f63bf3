//! Tools in a request, and the items that they lead to.

use serde_json::{Value, json};

use super::*;

#[test]
fn tools_name_nothing_that_the_provider_keeps_for_any_tenant() {
    let allowed = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    for (request, pointer, name) in [
        (
            tool(json!({ "type": "file_search", "vector_store_ids": ["v"] })),
            "/tools/0/vector_store_ids",
            "vector_store_ids",
        ),
        (tool(json!({ "type": "code_interpreter", "container": "c" })), "/tools/0/container", "container"),
        (
            tool(json!({ "type": "code_interpreter", "container": { "type": "auto", "file_ids": ["f"] } })),
            "/tools/0/container/file_ids",
            "file_ids",
        ),
        (
            tool(json!({ "type": "image_generation", "input_image_mask": { "file_id": "f" } })),
            "/tools/0/input_image_mask/file_id",
            "file_id",
        ),
        (
            tool(
                json!({ "type": "shell", "environment": { "type": "container_reference", "container_id": "c" } }),
            ),
            "/tools/0/environment/container_id",
            "container_id",
        ),
        (
            tool(
                json!({ "type": "namespace", "tools": [{ "type": "file_search", "vector_store_ids": ["v"] }] }),
            ),
            "/tools/0/tools/0/vector_store_ids",
            "vector_store_ids",
        ),
        (
            item(json!({ "type": "shell_call", "call_id": "c", "action": { "commands": [] },
                "environment": { "type": "container_reference", "container_id": "c" } })),
            "/input/0/environment/container_id",
            "container_id",
        ),
        (
            item(json!({ "type": "additional_tools", "role": "developer",
                "tools": [{ "type": "file_search", "vector_store_ids": ["v"] }] })),
            "/input/0/tools/0/vector_store_ids",
            "vector_store_ids",
        ),
    ] {
        assert_eq!(refused(&request, NONE).as_deref(), Some(pointer));
        check_request(&request, NONE, &allowed(&[name])).expect(pointer);
        check_request(&request, NONE, &allowed(&["file_search", "code_interpreter", "shell"]))
            .expect_err(pointer);
    }
    let auto = tool(json!({ "type": "code_interpreter", "container": { "type": "auto", "file_ids": [] } }));
    assert_eq!(refused(&auto, NONE), None);
}

#[test]
fn tools_that_the_provider_runs_are_refused_where_tools_are_judged() {
    let hosted = |name: &str| tool(typed(name));
    let namespace = |inner: Value| tool(json!({ "type": "namespace", "name": "n", "tools": [inner] }));
    let shell = |environment: Value| tool(json!({ "type": "shell", "environment": environment }));
    assert_refused_at(
        &[CALLS, RESULTS],
        vec![
            case(hosted("web_search"), "/tools/0/type", "web_search"),
            case(hosted("web_search_2025_08_26"), "/tools/0/type", "web_search"),
            case(hosted("web_search_2025_08_26"), "/tools/0/type", "web_search_2025_08_26"),
            case(hosted("web_search_preview"), "/tools/0/type", "web_search"),
            case(hosted("web_search_preview"), "/tools/0/type", "web_search_preview"),
            case(hosted("web_search_preview_2025_03_11"), "/tools/0/type", "web_search"),
            case(hosted("web_search_preview_2025_03_11"), "/tools/0/type", "web_search_preview"),
            case(hosted("web_search_preview_2025_03_11"), "/tools/0/type", "web_search_preview_2025_03_11"),
            case(hosted("file_search"), "/tools/0/type", "file_search"),
            case(hosted("code_interpreter"), "/tools/0/type", "code_interpreter"),
            case(hosted("image_generation"), "/tools/0/type", "image_generation"),
            case(hosted("mcp"), "/tools/0/type", "mcp"),
            case(hosted("tool_search"), "/tools/0/type", "tool_search"),
            case(
                tool(json!({ "type": "tool_search", "execution": "server" })),
                "/tools/0/type",
                "tool_search",
            ),
            case(hosted("programmatic_tool_calling"), "/tools/0/type", "programmatic_tool_calling"),
            case(hosted("computer"), "/tools/0/type", "computer"),
            case(hosted("computer_use_preview"), "/tools/0/type", "computer"),
            case(hosted("computer_use_preview"), "/tools/0/type", "computer_use_preview"),
            case(hosted("computer_use_2026_01_01"), "/tools/0/type", "computer"),
            case(hosted("new"), "/tools/0/type", "new"),
            case(hosted("functions"), "/tools/0/type", "functions"),
            case(tool(json!({ "name": "f", "parameters": {} })), "/tools/0", "tools"),
            case(tool(json!("web_search")), "/tools/0", "tools"),
            case(tool(json!({ "type": 1 })), "/tools/0", "tools"),
            case(shell(json!({ "type": "container_auto" })), "/tools/0/environment", "shell"),
            case(shell(json!(null)), "/tools/0/environment", "shell"),
            case(shell(json!("local")), "/tools/0/environment", "shell"),
            case(tool(json!({ "type": "shell" })), "/tools/0/environment", "shell"),
            case(namespace(typed("mcp")), "/tools/0/tools/0/type", "mcp"),
            case(namespace(typed("shell")), "/tools/0/tools/0/type", "shell"),
            case(namespace(typed("namespace")), "/tools/0/tools/0/type", "namespace"),
            case(namespace(json!({ "name": "f" })), "/tools/0/tools/0", "tools"),
            case(with("mcp_servers", json!([{ "type": "url" }])), "/mcp_servers", "mcp_servers"),
            case(with("web_search_options", json!({})), "/web_search_options", "web_search_options"),
            case(with("plugins", json!([{ "id": "web" }])), "/plugins", "plugins"),
        ],
    );
}

#[test]
fn items_of_what_the_provider_runs_are_refused_where_tools_are_judged() {
    let of = |name: &str| item(typed(name));
    let search = |item_type: &str, execution: &str, id: Value| {
        item(
            json!({ "type": item_type, "execution": execution, "call_id": id, "arguments": {}, "tools": [] }),
        )
    };
    assert_refused_at(
        &[CALLS, RESULTS],
        vec![
            case(of("web_search_call"), "/input/0", "web_search"),
            case(of("web_search_call"), "/input/0", "web_search_preview_2025_03_11"),
            case(of("web_search_call"), "/input/0", "web_search_call"),
            case(of("file_search_call"), "/input/0", "file_search"),
            case(of("code_interpreter_call"), "/input/0", "code_interpreter"),
            case(of("image_generation_call"), "/input/0", "image_generation"),
            case(of("mcp_call"), "/input/0", "mcp"),
            case(of("mcp_list_tools"), "/input/0", "mcp"),
            case(of("mcp_approval_request"), "/input/0", "mcp"),
            case(of("mcp_approval_response"), "/input/0", "mcp"),
            case(of("tool_search_call"), "/input/0", "tool_search"),
            case(of("tool_search_output"), "/input/0", "tool_search"),
            case(search("tool_search_call", "server", json!("c")), "/input/0", "tool_search"),
            case(search("tool_search_output", "server", json!("c")), "/input/0", "tool_search"),
            // Without an id it is nobody's call.
            case(search("tool_search_call", "client", json!(null)), "/input/0", "tool_search"),
            case(search("tool_search_output", "client", json!(null)), "/input/0", "tool_search"),
            case(of("program"), "/input/0", "programmatic_tool_calling"),
            case(of("program_output"), "/input/0", "programmatic_tool_calling"),
            case(of("computer_call"), "/input/0", "computer"),
            case(of("computer_call"), "/input/0", "computer_use_preview"),
            case(of("computer_call_output"), "/input/0", "computer"),
        ],
    );
    let listed = item(json!({ "type": "mcp_list_tools", "server_label": "s", "tools": [{ "name": "f" }] }));
    check_request(&listed, ALL, &["mcp".to_owned()]).expect("its tools are those of the server");
}

#[test]
fn tools_in_items_are_those_of_the_request() {
    let item_with = |item_type: &str, tool: &str| item(json!({ "type": item_type, "tools": [typed(tool)] }));
    for (item_type, allowed) in [("tool_search_output", &["tool_search"][..]), ("additional_tools", &[])] {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        check_request(&item_with(item_type, "function"), ALL, &allowed).expect("a tool of the agent");
        let hosted = item_with(item_type, "mcp");
        let error = check_request(&hosted, ALL, &allowed).expect_err("a tool of the provider");
        assert_eq!(error.violations[0].pointer, "/input/0/tools/0/type", "{item_type}");
        check_request(&hosted, ALL, &[&allowed[..], &["mcp".to_owned()]].concat()).expect("all is allowed");
    }
    let hosted = item_with("additional_tools", "mcp");
    assert_eq!(refused(&hosted, CALLS).as_deref(), Some("/input/0/tools/0/type"));
}

#[test]
fn tools_that_the_agent_found_are_those_of_the_request() {
    let found = |name: &str, value: Value| {
        let mut found =
            json!({ "type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [] });
        found[name] = value;
        item(found)
    };
    assert_refused_at(
        &[CALLS, RESULTS],
        vec![
            case(found("tools", json!([typed("function"), typed("mcp")])), "/input/0/tools/1/type", "mcp"),
            case(found("tools", json!([{ "name": "f" }])), "/input/0/tools/0", "tools"),
        ],
    );
    let kept = found("tools", json!([{ "type": "file_search", "vector_store_ids": ["v"] }]));
    assert_eq!(refused(&kept, NONE).as_deref(), Some("/input/0/tools/0/vector_store_ids"));
    assert_refused_at(
        &[REQUESTS, RESULTS],
        vec![
            case(found("output", json!("seen by nobody")), "/input/0/output", "output"),
            case(found("id", json!("seen by nobody")), "/input/0/id", "id"),
        ],
    );
}

#[test]
fn tools_of_the_agent_pass() {
    let schema = json!({ "type": "object", "properties": { "file_id": { "type": "string" }, "Type": {} } });
    let function = json!({ "type": "function", "name": "f", "description": "x".repeat(100), "parameters": schema.clone() });
    for passing in [
        function.clone(),
        json!({ "type": "custom", "name": "f", "format": { "type": "grammar", "definition": "x".repeat(100) } }),
        typed("local_shell"),
        typed("apply_patch"),
        json!({ "type": "shell", "environment": { "type": "local", "skills": [] } }),
        json!({ "type": "namespace", "name": "n", "tools": [function, typed("custom")] }),
        json!({ "type": "namespace", "name": "n" }),
        json!({ "type": "tool_search", "execution": "client", "description": "x".repeat(100), "parameters": schema }),
    ] {
        assert_eq!(refused(&tool(passing.clone()), ALL), None, "{passing}");
    }
}

#[test]
fn only_a_date_at_the_end_is_no_part_of_a_tools_name() {
    for (type_name, name) in [
        ("web_search_2025_08_26", "web_search"),
        ("web_search_preview_2025_08_26", "web_search"),
        ("web_search_2025_08_2x", "web_search_2025_08_2x"),
        ("web_search_2025-08-26", "web_search_2025-08-26"),
        ("web_search_20250826", "web_search_20250826"),
        ("_2025_08_26", "_2025_08_26"),
        ("é2025_08_26", "é2025_08_26"),
        ("", ""),
        ("computer_use", "computer"),
        ("computers", "computers"),
    ] {
        assert_eq!(family(type_name), name, "{type_name}");
    }
}

#[test]
fn what_the_provider_keeps_is_refused_in_all_items_whatever_else_is_allowed() {
    let kept = |item_type: &str, member: &str, value: Value| {
        let mut kept = json!({ "type": item_type, "id": "i" });
        kept[member] = value;
        item(kept)
    };
    let skill = json!([{ "type": "skill_reference", "skill_id": "s" }]);
    let environment = json!({ "type": "container_auto", "skills": skill });
    let screenshot = json!({ "type": "computer_screenshot", "file_id": "f" });
    let file = json!({ "id": "p", "variables": { "doc": { "type": "input_file", "file_id": "f" } } });
    for (request, pointer, name) in [
        (kept("code_interpreter_call", "container_id", json!("c")), "/input/0/container_id", "container_id"),
        (kept("computer_call_output", "output", screenshot), "/input/0/output/file_id", "file_id"),
        (
            kept("file_search_call", "results", json!([{ "file_id": "f" }])),
            "/input/0/results/0/file_id",
            "file_id",
        ),
        (kept("new", "Vector_Store_Ids", json!(["v"])), "/input/0/Vector_Store_Ids", "vector_store_ids"),
        (kept("new", "file_ids", json!(["f"])), "/input/0/file_ids", "file_ids"),
        (kept("new", "skills", skill.clone()), "/input/0/skills/0/skill_id", "skill_id"),
        (
            tool(json!({ "type": "shell", "environment": environment })),
            "/tools/0/environment/skills/0/skill_id",
            "skill_id",
        ),
        (
            tool(json!({ "type": "mcp", "server_label": "s", "tunnel_id": "t" })),
            "/tools/0/tunnel_id",
            "tunnel_id",
        ),
        (with("prompt", file), "/prompt/variables/doc/file_id", "file_id"),
    ] {
        let mut allowed: Vec<String> =
            ["code_interpreter", "computer", "file_search", "new", "shell", "mcp", "prompt"]
                .map(str::to_owned)
                .into();
        let error = check_request(&request, NONE, &allowed).expect_err(pointer);
        assert_eq!(error.violations[0].pointer, pointer);
        allowed.push(name.to_owned());
        check_request(&request, ALL, &allowed).expect(pointer);
    }
    let schema = json!({ "type": "object", "properties": { "file_id": { "type": "string" } } });
    for (item_type, tool) in [
        ("additional_tools", json!({ "type": "function", "name": "f", "parameters": schema })),
        ("mcp_list_tools", json!({ "name": "f", "input_schema": schema })),
    ] {
        assert_eq!(refused(&kept(item_type, "tools", json!([tool])), NONE), None, "{item_type}");
    }
}

#[test]
fn what_the_provider_keeps_is_refused_wherever_a_request_names_it() {
    let id = json!({ "deep": [{ "Vector_Store_Ids": ["v"] }] });
    let call = |form: &str, args: &str, value: Value| json!({ "type": form, "call_id": "c", "name": "f", args: value, "x": id });
    let result = json!({ "type": "function_call_output", "call_id": "c", "output": "", "x": id });
    let message = json!({ "type": "message", "role": "assistant", "content": [], "x": id });
    let thought = json!({ "type": "reasoning", "id": "r", "summary": [], "x": id });
    let function = json!({ "type": "function", "name": "f", "parameters": {}, "x": id });
    let namespace = json!({ "type": "namespace", "name": "n", "tools": [function] });
    let listed =
        json!({ "type": "mcp_list_tools", "server_label": "s", "tools": [{ "name": "f", "x": id }] });
    for (request, place) in [
        (with("x", id.clone()), ""),
        (with("reasoning", json!({ "x": id })), "/reasoning"),
        (with("text", json!({ "x": id })), "/text"),
        (with("text", json!({ "format": { "type": "json_schema", "x": id } })), "/text/format"),
        (with("prompt_cache_options", json!({ "x": id })), "/prompt_cache_options"),
        (with("tool_choice", json!({ "type": "function", "name": "f", "x": id })), "/tool_choice"),
        (tool(function.clone()), "/tools/0"),
        (tool(namespace), "/tools/0/tools/0"),
        (tool(json!({ "type": "local_shell", "x": id })), "/tools/0"),
        (tool(json!({ "type": "tool_search", "execution": "client", "x": id })), "/tools/0"),
        (item(call("function_call", "arguments", json!("{}"))), "/input/0"),
        (item(call("custom_tool_call", "input", json!("i"))), "/input/0"),
        (item(call("shell_call", "action", json!({}))), "/input/0"),
        (item(result), "/input/0"),
        (item(message), "/input/0"),
        (item(thought), "/input/0"),
        (item(listed), "/input/0/tools/0"),
    ] {
        let allowed = ["mcp", "x"].map(str::to_owned);
        let error = check_request(&request, NONE, &allowed).expect_err(place);
        assert_eq!(error.violations[0].pointer, format!("{place}/x/deep/0/Vector_Store_Ids"));
    }
    let schema = json!({ "properties": { "file_id": { "type": "string" } }, "default": { "file_id": "f" } });
    let call =
        json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": { "file_id": "f" } });
    for request in [
        with("metadata", json!({ "file_id": "f" })),
        with("text", json!({ "format": { "type": "json_schema", "name": "n", "schema": schema } })),
        with("x", json!({ "file_id": { "type": "string" }, "file_ids": [], "skill_id": null })),
        tool(json!({ "type": "function", "name": "f", "parameters": schema })),
        tool(json!({ "type": "tool_search", "execution": "client", "parameters": schema })),
        item(call),
    ] {
        assert_eq!(refused(&request, NONE), None);
    }
}

#[test]
fn an_item_that_has_only_its_id_is_a_reference() {
    for named in [
        json!({ "type": "image_generation_call", "id": "ig_1" }),
        json!({ "type": "image_generation_call", "id": "ig_1", "status": "completed", "result": null }),
        json!({ "type": "web_search_call", "id": "ws_1", "action": {} }),
        json!({ "type": "file_search_call", "id": "fs_1", "queries": [] }),
        json!({ "type": "additional_tools", "id": "at_1" }),
        json!({ "type": "new", "id": "n_1" }),
    ] {
        let allowed = ["image_generation", "web_search", "file_search", "new"].map(str::to_owned);
        let error = check_request(&item(named.clone()), NONE, &allowed).expect_err("a reference");
        assert!(error.detail.starts_with("`item_reference` is refused"), "{named}");
        assert_eq!(error.violations[0].pointer, "/input/0");
    }
    for whole in [
        json!({ "type": "image_generation_call", "id": "ig_1", "result": "aGk=" }),
        json!({ "type": "compaction_trigger" }),
    ] {
        assert_eq!(refused(&item(whole.clone()), NONE), None, "{whole}");
    }
}

#[test]
fn a_search_of_the_agent_names_nothing_that_the_provider_keeps() {
    let search = |item_type: &str, member: &str, value: Value| {
        let arguments = json!({ "file_id": "a file of the agent's" });
        let mut search =
            json!({ "type": item_type, "execution": "client", "call_id": "c", "arguments": arguments });
        search[member] = value;
        search
    };
    let stored = json!([{ "type": "file_search", "vector_store_ids": ["v"] }]);
    for (searched, pointer, name) in [
        (search("tool_search_call", "file_ids", json!(["f"])), "/input/0/file_ids", "file_ids"),
        (
            search("tool_search_call", "tools", stored),
            "/input/0/tools/0/vector_store_ids",
            "vector_store_ids",
        ),
        (
            json!({ "type": "tool_search_output", "execution": "client", "call_id": "c", "tools": [], "file_ids": ["f"] }),
            "/input/0/file_ids",
            "file_ids",
        ),
    ] {
        let request = item(searched);
        assert_eq!(refused(&request, NONE).as_deref(), Some(pointer));
        check_request(&request, NONE, &[name.to_owned()]).expect(pointer);
    }
    let found = item(search("tool_search_call", "tools", json!([{ "type": "function", "name": "f" }])));
    assert_eq!(refused(&found, NONE), None);
    assert_eq!(refused(&found, ALL).as_deref(), Some("/input/0/tools"));
}
