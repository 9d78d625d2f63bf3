//! Checks of Describe, the manifest and Initialize, and the comparison of manifests.

use std::{collections::BTreeSet, sync::Arc};

use hookgate_proto::plugin::v1::{DescribeResponse, PointOffer};
use serde_json::Value;

use crate::conformance::{
    check::{CheckVerdict, Fault, Halt},
    sample::{SampleCall, SampleContent},
    session::{Session, unknown_digest},
};
use hookgate::{config::is_name, core::schema_violation, upstream::Refusal};

/// A plugin connects, and answers Describe before anything else.
pub(super) async fn describe(session: &mut Session) -> CheckVerdict {
    if session.process.is_some() && session.trial.connect().await.is_ok() {
        let advice = "something listens at the endpoint already: stop it, or leave out the command";
        return Err(Halt::Usage(advice.into()));
    }
    let connection = session.start().await.map_err(|got| {
        Fault::new("a plugin that listens at the endpoint", got, "start the plugin there, and see its log")
    })?;
    let described = session.trial.describe(&connection).await.map_err(|got| {
        let fix = match got.starts_with(Refusal::NameMismatch.as_str()) {
            true => "say with --name which plugin is meant, if the endpoint serves several",
            false => "answer Describe within 5 s, without a configuration and before any Initialize",
        };
        Fault::new("a DescribeResponse as the first answer on the connection", got, fix)
    })?;
    session.connection = Some(connection);
    session.described = Some(described);
    Ok(())
}

/// The manifest is one that a gateway accepts.
pub(super) async fn manifest(session: &mut Session) -> CheckVerdict {
    let described = session.described.clone().unwrap_or_default();
    let fault =
        |got: String| Fault::new("a manifest that a gateway accepts", got, "correct the answer to Describe");
    let manifest = session.trial.accept(described).map_err(fault)?;
    if !is_name(&manifest.name) {
        let got =
            format!("the name `{}`: use a letter and up to 63 letters, digits, `_` and `-`", manifest.name);
        return Err(fault(got).into());
    }
    if !manifest.capabilities.is_empty() && !session.trial.offers_services() {
        return Err(Halt::Usage(format!(
            "the plugin asks for {}: pass --host-services, while no gateway uses the plugin",
            manifest.capabilities.join(" ")
        )));
    }
    session.manifest = Some(manifest);
    Ok(())
}

/// The plugin accepts its configuration. Before that, a call shows what it does without one.
pub(super) async fn initialize(session: &mut Session) -> CheckVerdict {
    let connection = session.connection()?;
    let Some(manifest) = session.manifest.clone() else { return Ok(()) };
    let config = session.trial.prepare(&manifest, &connection).map_err(|flaw| {
        Halt::Usage(format!("{}; pass a valid one with --config", flaw.replace("`config`", "the config")))
    })?;
    if let Some(schema) = &manifest.tenant_config_schema
        && let Err(error) = schema.validate(&session.tenant_config)
    {
        let at = schema_violation::place(&error);
        let flaw = format!(
            "the tenant-level config violates the plugin's schema: {} at `{at}`",
            schema_violation::rule(&error)
        );
        return Err(Halt::Usage(format!("{flaw}; pass a valid one with --tenant-config")));
    }
    let request = session.trial.initialize_request(&config);
    session.config = Some(config);
    if let Some(site) = session.offered_sites().first() {
        let sample = SampleCall::new(site, &SampleContent::ordinary());
        let early = session.reply(&connection, &sample, &unknown_digest()).await;
        session.early = Some(early.map(drop));
    }
    let connection = if connection.is_closed() {
        session.connection = None;
        session.recover().await.map_err(|got| {
            Fault::new("a plugin that survives a call before Initialize", got, "see the plugin's log")
        })?;
        session.connection()?
    } else {
        Arc::clone(&connection)
    };
    let answered = session.initialize(&connection, &request).await;
    let answer = answered.map_err(|error| {
        let fix = "accept the config, within 10 s; if the config is wrong, pass a valid one with --config";
        Fault::new("the status OK for Initialize", error.to_string(), fix)
    })?;
    session.initialize = Some(request);
    session.tools = answer.tools;
    Ok(())
}

/// The first field in which two manifests differ. Like a gateway, it compares schemas as JSON and lists as sets.
pub(super) fn difference(first: &DescribeResponse, second: &DescribeResponse) -> Option<&'static str> {
    let schema = |json: &[u8]| serde_json::from_slice::<Value>(json).ok();
    let points = |manifest: &DescribeResponse| -> BTreeSet<_> {
        let reads = |offer: &PointOffer| {
            offer.reads.as_ref().map(|reads| reads.names.iter().cloned().collect::<BTreeSet<_>>())
        };
        let points = manifest.points.iter();
        points
            .map(|offer| (offer.point, offer.access, offer.side_effects, reads(offer), offer.windows))
            .collect()
    };
    let hooks = |manifest: &DescribeResponse| -> BTreeSet<_> {
        manifest.hooks.iter().map(|offer| (offer.hook.clone(), offer.side_effects)).collect()
    };
    let tools = |manifest: &DescribeResponse| -> BTreeSet<_> { manifest.tools.iter().cloned().collect() };
    let capabilities =
        |manifest: &DescribeResponse| -> BTreeSet<_> { manifest.capabilities.iter().cloned().collect() };
    let differences = [
        ("name", first.name != second.name),
        ("version", first.version != second.version),
        ("protocol_versions", first.protocol_versions != second.protocol_versions),
        ("points", points(first) != points(second)),
        ("hooks", hooks(first) != hooks(second)),
        ("tools", tools(first) != tools(second)),
        ("capabilities", capabilities(first) != capabilities(second)),
        ("config_schema", schema(&first.config_schema) != schema(&second.config_schema)),
        ("tenant_config_schema", schema(&first.tenant_config_schema) != schema(&second.tenant_config_schema)),
    ];
    differences.into_iter().find(|(_, differs)| *differs).map(|(field, _)| field)
}

/// Fails unless the plugin `described` itself as before.
pub(super) fn same_manifest(session: &Session, described: &DescribeResponse) -> Result<(), Fault> {
    let before = session.described.as_ref();
    match before.and_then(|before| difference(before, described)) {
        None => Ok(()),
        Some(field) => Err(Fault::new(
            "the same manifest on every connection",
            format!("a manifest with another `{field}`"),
            "answer Describe always alike",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_in_schemas_and_lists_makes_no_other_manifest() {
        let manifest = |schema: &'static str, capabilities: &[&str]| DescribeResponse {
            config_schema: schema.into(),
            capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        let first = manifest(r#"{"a":1,"b":2}"#, &["log", "emit"]);
        assert_eq!(difference(&first, &manifest(r#"{ "b": 2, "a": 1 }"#, &["emit", "log"])), None);
        assert_eq!(difference(&first, &manifest(r#"{"a":1}"#, &["log", "emit"])), Some("config_schema"));
        assert_eq!(difference(&first, &manifest(r#"{"a":1,"b":2}"#, &["log"])), Some("capabilities"));
    }
}
