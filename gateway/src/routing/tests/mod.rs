//! Tests of routing through its public interface.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    config::{Config, Problem},
    core::point::Point,
};

mod change;
mod conditions;
mod facts;
mod groups;
mod order;
mod properties;
mod refused;
mod required;

const TOOL: Point = Point::BeforeToolCall;

/// A configuration with these sections.
fn config(members: Value) -> Config {
    let mut file = json!({ "auth": { "issuers": [] } });
    extend(&mut file, members);
    serde_json::from_value(file).expect("the test writes a configuration of the right types")
}

fn extend(object: &mut Value, members: Value) {
    let Value::Object(members) = members else { panic!("members, not {members}") };
    object.as_object_mut().expect("an object").extend(members);
}

fn table(members: Value) -> RouteTable {
    RouteTable::build(&config(members), &[], 1).expect("the configuration is valid")
}

fn problems(members: Value) -> Vec<Problem> {
    RouteTable::build(&config(members), &[], 1).expect_err("the configuration is invalid")
}

fn manifest(version: &str, points: &[Point], tenant_config_schema: Option<Value>) -> Option<Arc<Manifest>> {
    let mut offers = [None; 4];
    for point in points {
        offers[point.index()] = Some(PointAccess::new(Access::Modify, SideEffects::None));
    }
    Some(Arc::new(Manifest {
        name: "a".into(),
        version: version.parse().expect("a version"),
        offers,
        hooks: std::collections::BTreeMap::new(),
        tool_names: Arc::default(),
        tools: None,
        capabilities: Vec::new(),
        config_schema: None,
        tenant_config_schema: tenant_config_schema
            .map(|schema| Arc::new(jsonschema::validator_for(&schema).expect("a schema"))),
    }))
}

fn known<'t>(table: &'t RouteTable, tenant: &str) -> &'t TenantPlans {
    match table.tenant(tenant) {
        TenantRoute::Known(plans) => plans,
        other => panic!("`{tenant}` should be known, not {other:?}"),
    }
}

fn plan<'t>(table: &'t RouteTable, tenant: &str, point: Point) -> &'t Plan {
    known(table, tenant).plan(point)
}

fn chain(table: &RouteTable, tenant: &str, point: Point) -> Vec<String> {
    plan(table, tenant, point).steps.iter().map(|step| step.binding.to_string()).collect()
}

fn two_plugins() -> Value {
    json!([{ "name": "a", "builtin": "a" }, { "name": "b", "builtin": "b" }])
}
