use serde_json::json;

use super::*;

const LEEWAY: Duration = Duration::from_secs(30);

fn rules(settings: Value) -> ClaimRules {
    let mut issuer = json!({ "issuer": "https://id", "audience": "hookgate" });
    issuer.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let issuer: config::Issuer = serde_json::from_value(issuer).unwrap();
    let tenants = issuer.tenants.clone().unwrap_or(IssuerTenants::Any);
    ClaimRules::new(&issuer, tenants)
}

/// Valid claims overridden by `changes`; null removes a claim.
fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "iss": "https://id", "aud": "hookgate", "exp": 1_000, "sub": "robot", "tenant_id": "acme",
        "scope": "hookgate:invoke",
    });
    let map = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            map.remove(name)
        } else {
            map.insert(name.clone(), value.clone())
        };
    }
    claims
}

fn reason(rules: &ClaimRules, changes: Value) -> RefusalReason {
    rules.read(&claims(changes.clone()), Port::Data).expect_err(&changes.to_string()).reason
}

fn tenant(rules: &ClaimRules, changes: Value) -> Option<String> {
    let verified = rules.read(&claims(changes), Port::Data).unwrap();
    verified.identity.as_ref().map(|identity| identity.tenant.to_string())
}

#[test]
fn tenant_and_operator_are_read_from_the_default_claims() {
    let verified = rules(json!({})).read(&claims(json!({})), Port::Data).unwrap();
    let identity = verified.invoker().unwrap();
    assert_eq!((&*identity.tenant, &*identity.operator), ("acme", "robot"));
    assert_eq!((&*verified.operator, &*verified.issuer), ("robot", "https://id"));
    assert_eq!((identity.user_id.as_deref(), identity.claims.len()), (None, 0));
    assert_eq!(verified.validity, Validity { not_before: None, expires: 1_000, leeway: LEEWAY });
}

#[test]
fn claim_names_are_literal_or_json_pointers() {
    let names = json!({ "claims": {
        "tenant": "/org/0/id", "operator": "https://x/operator", "scopes": "/perm/scopes", "user_id": "/a~1b",
    } });
    let changes = json!({
        "tenant_id": "not-this-one", "sub": null, "scope": null, "org": [{ "id": "globex" }],
        "https://x/operator": "ann", "perm": { "scopes": ["other", "hookgate:invoke"] }, "a/b": "u7",
    });
    let verified = rules(names).read(&claims(changes), Port::Data).unwrap();
    let identity = verified.invoker().unwrap();
    assert_eq!((&*identity.tenant, &*identity.operator), ("globex", "ann"));
    assert_eq!(identity.user_id.as_deref(), Some("u7"));
}

#[test]
fn the_audience_must_be_ours() {
    let rules = rules(json!({}));
    assert!(rules.read(&claims(json!({ "aud": ["other", "hookgate"] })), Port::Data).is_ok());
    for audience in [json!("Hookgate"), json!(["other"]), json!([]), json!("hookgate other")] {
        assert_eq!(reason(&rules, json!({ "aud": audience })), RefusalReason::Audience, "{audience}");
    }
    for audience in [json!(null), json!(1), json!({ "hookgate": 1 }), json!(["hookgate", 1])] {
        assert_eq!(reason(&rules, json!({ "aud": audience })), RefusalReason::Claims, "{audience}");
    }
}

#[test]
fn each_port_takes_its_own_audience_alone() {
    let read = |rules: &ClaimRules, audience: Value, port| {
        let changes = json!({ "aud": audience, "scope": "hookgate:read" });
        rules.read(&claims(changes), port).map(drop).map_err(|refusal| refusal.reason)
    };
    let scopes = json!(["hookgate:read"]);
    let both = rules(json!({ "admin_audience": "operators", "scopes": scopes }));
    let wrong = Err(RefusalReason::Audience);
    assert_eq!(read(&both, json!("hookgate"), Port::Data), Ok(()));
    assert_eq!(read(&both, json!("operators"), Port::Admin), Ok(()));
    assert_eq!(read(&both, json!("hookgate"), Port::Admin), wrong);
    assert_eq!(read(&both, json!("operators"), Port::Data), wrong);
    let one = rules(json!({ "scopes": scopes }));
    for audience in [json!("hookgate"), json!("operators"), json!([]), json!("")] {
        assert_eq!(read(&one, audience.clone(), Port::Admin), wrong, "{audience}");
    }
}

#[test]
fn an_operator_of_all_tenants_needs_an_issuer_for_all_tenants() {
    let operator = |tenants: Value| {
        let settings =
            json!({ "admin_audience": "operators", "tenants": tenants, "scopes": ["hookgate:read"] });
        let changes = json!({ "aud": "operators", "scope": "hookgate:read", "tenant_id": null });
        let verified =
            rules(settings).read(&claims(changes), Port::Admin).map_err(|refusal| refusal.reason)?;
        Ok(verified.reader().map_err(|refusal| refusal.reason)?.map(ToString::to_string))
    };
    assert_eq!(operator(json!("*")), Ok(None));
    assert_eq!(operator(json!(["acme"])), Err(RefusalReason::Claims));
    assert_eq!(operator(json!({ "fixed": "solo" })), Ok(Some("solo".to_owned())));
}

#[test]
fn admin_includes_read_and_nothing_else_does() {
    let every = json!(["hookgate:invoke", "hookgate:read", "hookgate:admin", "hookgate:plugin"]);
    let rules = rules(json!({ "admin_audience": "operators", "scopes": every }));
    for (scope, may) in [("invoke", false), ("plugin", false), ("read", true), ("admin", true)] {
        let changes = json!({ "aud": "operators", "scope": format!("hookgate:{scope}"), "tenant_id": null });
        let verified = rules.read(&claims(changes), Port::Admin).unwrap();
        let reason =
            verified.reader().map(|tenant| assert_eq!(tenant, None)).map_err(|refusal| refusal.reason);
        assert_eq!(reason, if may { Ok(()) } else { Err(RefusalReason::Scope) }, "{scope}");
    }
}

#[test]
fn plugins_are_registered_by_a_token_that_names_them_and_no_tenant() {
    let settings = json!({ "admin_audience": "operators", "scopes": ["hookgate:plugin", "hookgate:admin"] });
    let rules = rules(settings);
    let registers = |changes: Value| {
        let mut all = json!({ "aud": "operators", "scope": "hookgate:plugin", "tenant_id": null });
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let verified = rules.read(&claims(all), Port::Host).map_err(|refusal| refusal.reason)?;
        verified.registers("guard").map_err(|refusal| refusal.reason)
    };
    for plugins in [json!("guard"), json!("a guard b"), json!(["a", "guard"])] {
        assert_eq!(registers(json!({ "plugins": plugins })), Ok(()), "{plugins}");
    }
    for plugins in
        [json!(null), json!(""), json!("*"), json!("guard2 guar"), json!(["a guard"]), json!({ "guard": 1 })]
    {
        assert_eq!(registers(json!({ "plugins": plugins })), Err(RefusalReason::Claims), "{plugins}");
    }
    let guard = json!(["guard"]);
    assert_eq!(registers(json!({ "plugins": guard, "scope": "hookgate:admin" })), Err(RefusalReason::Scope));
    assert_eq!(registers(json!({ "plugins": guard, "tenant_id": "acme" })), Err(RefusalReason::Claims));
    assert_eq!(registers(json!({ "plugins": guard, "aud": "agents" })), Err(RefusalReason::Audience));
    let other =
        json!({ "scope": "hookgate:admin", "tenant_id": null, "plugins": { "a": 1 }, "aud": "operators" });
    assert!(rules.read(&claims(other), Port::Admin).is_ok(), "without the scope, the claim may be anything");
}

#[test]
fn times_are_whole_seconds_before_the_year_10000() {
    let rules = rules(json!({}));
    let wrong =
        [json!("1000"), json!(1000.5), json!(-1), json!(1e30), json!(u64::MAX), json!(MAX_TIMESTAMP + 1)];
    for time in wrong.into_iter().chain([json!([1000]), json!(true)]) {
        assert_eq!(reason(&rules, json!({ "exp": time })), RefusalReason::Claims, "exp {time}");
        assert_eq!(reason(&rules, json!({ "nbf": time })), RefusalReason::Claims, "nbf {time}");
    }
    assert_eq!(reason(&rules, json!({ "exp": null })), RefusalReason::Claims);
    assert!(rules.read(&claims(json!({ "exp": MAX_TIMESTAMP, "nbf": 0 })), Port::Data).is_ok());
}

#[test]
fn tenants_and_operators_have_1_to_256_bytes_and_no_control_characters() {
    let rules = rules(json!({}));
    let long = "é".repeat(128);
    assert_eq!(tenant(&rules, json!({ "tenant_id": long })), Some(long.clone()));
    assert_eq!(tenant(&rules, json!({ "tenant_id": "a/b c\u{1f980}*" })).as_deref(), Some("a/b c\u{1f980}*"));
    let wrong =
        [json!(""), json!(format!("{long}x")), json!("a\nb"), json!("a\u{85}"), json!(7), json!(["a"])];
    for value in wrong {
        assert_eq!(reason(&rules, json!({ "tenant_id": value })), RefusalReason::Claims, "{value}");
        assert_eq!(reason(&rules, json!({ "sub": value })), RefusalReason::Claims, "{value}");
    }
    assert_eq!(reason(&rules, json!({ "tenant_id": "*" })), RefusalReason::Claims);
    assert_eq!(reason(&rules, json!({ "tenant_id": null })), RefusalReason::Claims);
    assert_eq!(reason(&rules, json!({ "sub": null })), RefusalReason::Claims);
    // A JSON null is present, but isn't a tenant.
    let mut null = claims(json!({}));
    null["tenant_id"] = Value::Null;
    assert_eq!(rules.read(&null, Port::Data).unwrap_err().reason, RefusalReason::Claims);
}

#[test]
fn an_issuer_speaks_only_for_its_tenants() {
    let listed = rules(json!({ "tenants": ["acme", "globex"] }));
    assert_eq!(tenant(&listed, json!({ "tenant_id": "globex" })).as_deref(), Some("globex"));
    for other in ["initech", "acme ", "Acme", "acm"] {
        let refusal = listed.read(&claims(json!({ "tenant_id": other })), Port::Data).unwrap_err();
        assert_eq!(refusal.reason.code(), crate::core::error::Code::TenantUnknown);
    }
    let fixed = rules(json!({ "tenants": { "fixed": "solo" } }));
    assert_eq!(tenant(&fixed, json!({ "tenant_id": null })).as_deref(), Some("solo"));
    assert_eq!(tenant(&fixed, json!({ "tenant_id": "acme" })).as_deref(), Some("solo"));
}

#[test]
fn scopes_beyond_the_issuers_are_dropped() {
    let rules = rules(json!({ "scopes": ["hookgate:invoke", "hookgate:read"] }));
    let scopes = json!({ "scope": "openid  hookgate:read hookgate:admin hookgate:plugin hookgate:invoke2" });
    let verified = rules.read(&claims(scopes), Port::Data).unwrap();
    assert_eq!(verified.scopes, [Scope::Read].into_iter().collect());
    assert!(verified.require(Scope::Read).is_ok());
    for missing in [Scope::Invoke, Scope::Admin, Scope::Plugin] {
        assert_eq!(
            verified.require(missing).unwrap_err().reason.code(),
            crate::core::error::Code::ScopeMissing
        );
    }
    assert_eq!(verified.invoker().unwrap_err().reason, RefusalReason::Scope);
}

#[test]
fn scopes_are_a_string_or_an_array_and_absent_means_none() {
    let rules = rules(json!({}));
    for scopes in [json!("hookgate:invoke"), json!(["hookgate:invoke"])] {
        assert!(rules.read(&claims(json!({ "scope": scopes })), Port::Data).unwrap().invoker().is_ok());
    }
    for scopes in [json!(null), json!(""), json!([]), json!("HOOKGATE:INVOKE"), json!(["hookgate:invoke x"])]
    {
        let verified = rules.read(&claims(json!({ "scope": scopes })), Port::Data).unwrap();
        assert!(verified.scopes.is_empty(), "{scopes}");
    }
    for scopes in [json!(1), json!({}), json!(["hookgate:invoke", 1])] {
        assert_eq!(reason(&rules, json!({ "scope": scopes })), RefusalReason::Claims, "{scopes}");
    }
}

#[test]
fn only_a_read_or_admin_token_needs_no_tenant() {
    let rules =
        rules(json!({ "scopes": ["hookgate:invoke", "hookgate:read", "hookgate:admin", "hookgate:plugin"] }));
    for scope in ["hookgate:read", "hookgate:admin", "hookgate:read hookgate:invoke"] {
        let verified = rules.read(&claims(json!({ "tenant_id": null, "scope": scope })), Port::Data).unwrap();
        assert_eq!((verified.identity.as_ref(), &*verified.operator), (None, "robot"));
        let refusal = verified.invoker().unwrap_err();
        let invoke = verified.scopes.contains(Scope::Invoke);
        assert_eq!(refusal.reason, if invoke { RefusalReason::Claims } else { RefusalReason::Scope });
    }
    for scope in ["", "hookgate:invoke", "hookgate:plugin"] {
        assert_eq!(reason(&rules, json!({ "tenant_id": null, "scope": scope })), RefusalReason::Claims);
    }
}

#[test]
fn configured_claims_become_labels_where_they_are_short_and_plain() {
    let rules = rules(
        json!({ "claims": { "labels": ["s", "n", "b", "/deep/er", "obj", "arr", "nul", "long", "ctl", "none", "max"] } }),
    );
    let mut claims = claims(json!({
        "s": "pro", "n": 7.5, "b": true, "deep": { "er": "x" }, "obj": {}, "arr": ["a"],
        "long": "x".repeat(257), "max": "x".repeat(256), "ctl": "a\tb", "unlisted": "secret",
    }));
    claims["nul"] = Value::Null;
    let verified = rules.read(&claims, Port::Data).unwrap();
    let labels = &verified.invoker().unwrap().claims;
    let max = "x".repeat(256);
    let expected = [
        ("claim./deep/er", "x"),
        ("claim.b", "true"),
        ("claim.max", &max),
        ("claim.n", "7.5"),
        ("claim.s", "pro"),
    ];
    assert!(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected), "{labels:?}");
}

#[test]
fn a_mapped_user_that_the_token_lacks_is_empty_and_never_absent() {
    let rules = rules(json!({ "claims": { "user_id": "uid" } }));
    let user = |changes| rules.read(&claims(changes), Port::Data).unwrap().invoker().unwrap().user_id.clone();
    assert_eq!(user(json!({ "uid": "u1" })).as_deref(), Some("u1"));
    assert_eq!(user(json!({ "uid": 42 })).as_deref(), Some("42"));
    assert_eq!(user(json!({})).as_deref(), Some(""));
    assert_eq!(reason(&rules, json!({ "uid": "" })), RefusalReason::Claims);
    assert_eq!(reason(&rules, json!({ "uid": ["u1"] })), RefusalReason::Claims);
}

#[test]
fn the_leeway_holds_to_the_second_on_both_ends() {
    let validity = Validity { not_before: Some(500), expires: 1_000, leeway: LEEWAY };
    let at =
        |millis| validity.check(std::time::UNIX_EPOCH + Duration::from_millis(millis)).map_err(|r| r.reason);
    assert_eq!(at(469_000), Err(RefusalReason::NotYetValid));
    assert_eq!(at(469_999), Err(RefusalReason::NotYetValid));
    assert_eq!(at(470_000), Ok(()));
    assert_eq!(at(471_000), Ok(()));
    assert_eq!(at(1_029_000), Ok(()));
    assert_eq!(at(1_029_999), Ok(()));
    assert_eq!(at(1_030_000), Err(RefusalReason::Expired));
    assert_eq!(at(1_031_000), Err(RefusalReason::Expired));
}
