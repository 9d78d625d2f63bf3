use super::*;

fn read(text: &str) -> Result<ObjectsFile, Problems> {
    ObjectsFile::read("f.yaml".into(), text, &BTreeMap::from([("PLAN".into(), "gold".into())]))
}

fn wrong(text: &str) -> String {
    read(text).err().map(|problems| problems.to_string()).unwrap_or_default()
}

#[test]
fn tenants_are_a_list_or_hold_one() {
    for text in ["tenants: [{ id: acme }]", "tenants: { unknown: accept, list: [{ id: acme }] }"] {
        let listed = read(text).ok().unwrap();
        assert_eq!(
            listed.values(object::ObjectKind::Tenant),
            Some(&[serde_json::json!({ "id": "acme" })][..]),
            "{text}"
        );
        assert_eq!(
            listed.values(object::ObjectKind::Plugin),
            None,
            "what the file doesn't list is nobody's to prune"
        );
    }
}

#[test]
fn references_of_plugins_stay_and_others_are_resolved() {
    let listed = read(
        "plugins: [{ name: p, builtin: content-policy, config: { key: '${UNSET}' } }]\n\
         tenants: [{ id: acme, labels: { plan: '${PLAN}' } }]\nauth: { issuers: [{ key: '${ALSO_UNSET}' }] }",
    );
    let listed = listed.ok().unwrap();
    assert_eq!(listed.values(object::ObjectKind::Plugin).unwrap()[0]["config"]["key"], "${UNSET}");
    assert_eq!(listed.values(object::ObjectKind::Tenant).unwrap()[0]["labels"]["plan"], "gold");
    assert_eq!(listed.others, ["auth"]);
}

#[test]
fn upstreams_and_models_are_below_llm_and_keys_stay_references() {
    let listed = read(
        "llm:\n  upstreams: [{ name: u, base_url: 'https://${PLAN}/v1', credential: '${HOOKGATE_SECRET_U}' }]\n  \
         models: [{ match: '*', upstream: elsewhere }]\n",
    );
    let listed = listed.unwrap_or_else(|problems| panic!("{problems}"));
    let upstream = &listed.values(object::ObjectKind::Upstream).unwrap()[0];
    assert_eq!(
        (&upstream["base_url"], &upstream["credential"]),
        (&"https://gold/v1".into(), &"${HOOKGATE_SECRET_U}".into())
    );
    assert_eq!(listed.values(object::ObjectKind::Model).map(<[_]>::len), Some(1));
    assert!(listed.others.is_empty() && listed.values(object::ObjectKind::Plugin).is_none());
    let said = wrong("llm: { upstreams: [{ name: u, base_url: 'https://a/v1', credential: sk-1 }] }");
    assert!(said.contains("`credential` is not a reference") && !said.contains("sk-1"), "{said}");
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    let said = wrong(
        "tenants:\n  - id: acme\n    colour: red\nbindings:\n  - { plugin: p, tenant: acme, priority: low }\n",
    );
    assert!(said.contains("f.yaml:3:5: /tenants/list/0/colour"), "{said}");
    assert!(said.contains("f.yaml:5:") && said.contains("/bindings/0/priority"), "{said}");
    assert!(wrong("").contains("the file is empty"));
    assert!(wrong("server: {}").contains("lists no plugins, tenants, bindings, upstreams or models"));
    assert!(wrong("tenants: { list: {} }").contains("`list` must be a list, not a mapping"));
    assert!(wrong("tenants: 5").contains("`tenants` must be a list"), "{}", wrong("tenants: 5"));
}

/// Its list would be missing, and pruning depends on which lists are present.
#[test]
fn a_key_that_no_configuration_has_is_wrong_beside_lists_that_are_right() {
    let said = wrong("tenants: []\nserver: {}\nbinding:\n  - { plugin: p, tenant: acme, priority: 1 }\n");
    assert!(said.contains("f.yaml:3:1: /binding: `binding` is not a key here"), "{said}");
    assert!(said.contains("did you mean `bindings`?") && !said.contains("server"), "{said}");
    let said = wrong("tenants: []\nzzzzzz: hunter2\n");
    assert!(said.contains("f.yaml:2:1: /zzzzzz") && !said.contains("hunter2"), "{said}");
    assert!(wrong("tenant: []\n").contains("did you mean `tenants`?"));
    // Along with the other problems.
    let said = wrong("colour: ${UNSET}\ntenants:\n  - { id: acme, colour: red }\n");
    assert!(
        said.contains("f.yaml:1:1: /colour: ") && said.contains("f.yaml:3:17: /tenants/list/0/colour"),
        "{said}"
    );
    assert!(!said.contains("UNSET` is not set"), "{said}");
}

/// Also if another section of the file is in the same line.
#[test]
fn a_secret_beside_a_mistake_is_not_shown() {
    let said = wrong(
        "{ auth: { issuers: [{ keys: [{ secret: hunter2-hunter2 }] }] }, tenants: [{ id: acme, colour: red }] }",
    );
    assert!(said.contains("colour") && !said.contains("hunter2"), "{said}");
}

#[test]
fn what_others_find_has_its_line_or_its_name() {
    let listed = read("tenants:\n  - id: acme\nbindings:\n  - { plugin: p, tenant: nobody, priority: 1 }\n")
        .ok()
        .unwrap();
    let place = |kind, at, rest: &str| ObjectLocation::Object(kind, at, rest.into());
    let said = listed.render(vec![
        (place(object::ObjectKind::Binding, 0, "/tenant"), "no such tenant".into()),
        (ObjectLocation::Other(object::ObjectKind::Binding, "b".into(), "/plugin".into()), "names p".into()),
        (ObjectLocation::Nowhere, "and that".into()),
    ]);
    let said = said.to_string();
    assert!(said.contains("f.yaml:4:") && said.contains("/bindings/0/tenant: no such tenant"), "{said}");
    assert!(said.contains("binding `b` in the registry: /plugin: names p"), "{said}");
    assert!(said.contains("f.yaml: and that") || said.contains("and that"), "{said}");
}
