//! Which upstream a model's requests go to, and the models that a tenant may name.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::{
    config::{LlmProxy, ModelUpstream, Problem},
    core::{api_format::ApiFormat, model_names::ModelNames, object::Owner},
    llm::upstream::{LlmUpstream, UpstreamAnswer, UpstreamError, UpstreamTimeouts, credential_value},
};

/// The rules for models, and the upstreams that they name. Immutable; one per configuration.
#[derive(Debug)]
pub struct ModelRoutes {
    upstreams: Vec<Arc<LlmUpstream>>,
    /// By their priorities. The first that matches counts.
    rules: Vec<RouteRule>,
    /// Tenants' own credentials as headers: by the tenant's id, then by the upstream's name.
    credentials: HashMap<String, HashMap<String, HeaderValue>>,
}

#[derive(Debug)]
struct RouteRule {
    name: String,
    /// As written.
    pattern: String,
    names: ModelNames,
    upstream: Arc<LlmUpstream>,
    /// `None`: as the request names it.
    upstream_model: Option<String>,
}

/// A model that a tenant may name, and the provider and model that then answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedModel<'r> {
    /// A name, or the glob of a rule.
    pub name: &'r str,
    /// The provider.
    pub upstream: &'r str,
    /// The model's name there. `None`: as the request names it.
    pub upstream_model: Option<&'r str>,
}

/// Where requests for a model go.
#[derive(Debug, Clone, Copy)]
pub struct ModelRoute<'r> {
    /// The provider.
    pub upstream: &'r Arc<LlmUpstream>,
    /// The model's name there.
    pub model: &'r str,
    /// The tenant's own credential there.
    credential: Option<&'r HeaderValue>,
}

impl ModelRoute<'_> {
    /// Sends a request, as [`LlmUpstream::send`], with the tenant's own credential, or else the upstream's.
    ///
    /// # Errors
    /// As [`LlmUpstream::send`].
    pub async fn send(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
        timeouts: UpstreamTimeouts,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        self.upstream.send(path, headers, body, self.credential, timeouts).await
    }
}

impl ModelRoutes {
    /// The routes of `config`, in the order of the rules' priorities. An upstream that is unchanged in one of `before` keeps its client there, and so its
    /// connections.
    ///
    /// # Errors
    /// Too many upstreams or rules, an upstream whose client can't be set up, or a rule or a credential that the checks of the
    /// configuration would have refused.
    pub fn build(config: &LlmProxy, before: &[&ModelRoutes]) -> Result<Self, Vec<Problem>> {
        let mut problems = too_many(config);
        let upstream = |(index, entry): (usize, &Arc<ModelUpstream>)| {
            let mut kept = before.iter().flat_map(|routes| &routes.upstreams);
            let upstream = match kept.find(|upstream| upstream.is_from(entry)) {
                Some(same) => Ok(Arc::clone(same)),
                None => LlmUpstream::new(Arc::clone(entry)).map(Arc::new),
            };
            let problem = |message| Problem::new(format!("/llm/upstreams/{index}"), message);
            upstream.map_err(|message| problems.push(problem(message))).ok()
        };
        let upstreams: Vec<_> = config.upstreams.iter().enumerate().filter_map(upstream).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut rules = Vec::with_capacity(config.models.len());
        let mut entries: Vec<_> = config.models.iter().enumerate().collect();
        entries.sort_by_key(|(_, rule)| rule.effective_priority());
        for (index, rule) in entries {
            let place = format!("/llm/models/{index}");
            let names = ModelNames::new("match", std::slice::from_ref(&rule.pattern));
            let upstream = upstreams.iter().find(|upstream| **upstream.name() == *rule.upstream);
            match (names, upstream) {
                (Ok(names), Some(upstream)) => rules.push(RouteRule {
                    name: rule.effective_name().into_owned(),
                    pattern: rule.pattern.clone(),
                    names,
                    upstream: Arc::clone(upstream),
                    upstream_model: rule.upstream_model.clone(),
                }),
                (Err(fault), _) => problems.push(Problem::new(format!("{place}/match"), fault.to_string())),
                (_, None) => {
                    let message = format!("there is no upstream `{}`", rule.upstream);
                    problems.push(Problem::new(format!("{place}/upstream"), message));
                }
            }
        }
        let credentials = credentials(config).map_err(|problem| problems.push(problem)).unwrap_or_default();
        if problems.is_empty() { Ok(ModelRoutes { upstreams, rules, credentials }) } else { Err(problems) }
    }

    /// The route of `model` for clients of an API, and for `tenant`, which may use these models; `None` is all. No route
    /// for a model that is unknown and for one that the tenant may not name, so that nobody learns which of the two it is.
    pub fn route<'r>(
        &'r self,
        format: ApiFormat,
        model: &'r str,
        tenant: &str,
        models: Option<&ModelNames>,
    ) -> Option<ModelRoute<'r>> {
        let RouteRule { upstream, upstream_model, .. } =
            self.rule(format, model).filter(|_| is_allowed(model, models))?;
        let credential = self.credentials.get(tenant).and_then(|own| own.get(&**upstream.name()));
        Some(ModelRoute { upstream, model: upstream_model.as_deref().unwrap_or(model), credential })
    }

    /// The name of the upstream of `model` for a tenant with these models, as [`ModelRoutes::route`].
    pub fn upstream_name(
        &self,
        format: ApiFormat,
        model: &str,
        models: Option<&ModelNames>,
    ) -> Option<&Arc<str>> {
        let rule = self.rule(format, model).filter(|_| is_allowed(model, models))?;
        Some(rule.upstream.name())
    }

    /// The models that can be listed for a tenant with these models, sorted: those of rules without a wildcard, and
    /// those that the tenant's own list has without a wildcard. Globs name no model. Each with its provider's name.
    pub fn models<'r>(
        &'r self,
        format: ApiFormat,
        tenant: Option<&'r ModelNames>,
    ) -> BTreeMap<&'r str, &'r str> {
        let rules = self.rules.iter().filter(|rule| rule.upstream.format() == format);
        let of_rules = rules.flat_map(|rule| rule.names.literals());
        let of_tenant = tenant.into_iter().flat_map(ModelNames::literals);
        let allowed = of_rules.filter(|model| is_allowed(model, tenant)).chain(of_tenant);
        allowed.filter_map(|model| Some((model, &**self.rule(format, model)?.upstream.name()))).collect()
    }

    /// All that a tenant with these models may name: the models that can be listed, and the globs of rules, if the tenant may
    /// name others. Its own globs narrow these.
    pub fn named<'r>(&'r self, format: ApiFormat, tenant: Option<&'r ModelNames>) -> Vec<NamedModel<'r>> {
        let named = |name: &'r str, rule: &'r RouteRule| NamedModel {
            name,
            upstream: rule.upstream.name(),
            upstream_model: rule.upstream_model.as_deref(),
        };
        let listed = self.models(format, tenant).into_keys();
        let listed = listed.filter_map(|name| Some(named(name, self.rule(format, name)?)));
        let is_other = |rule: &&RouteRule| rule.upstream.format() == format && rule.names.has_globs();
        let globs = self.rules.iter().filter(is_other).map(|rule| named(&rule.pattern, rule));
        let has_others = tenant.is_none_or(ModelNames::has_globs);
        listed.chain(globs.filter(|_| has_others)).collect()
    }

    /// All upstreams, in the order of the configuration.
    pub fn upstreams(&self) -> &[Arc<LlmUpstream>] {
        &self.upstreams
    }

    /// The models that rules ask for at an upstream by their names there, each with the name of its rule. A glob asks for none.
    pub fn models_at(&self, upstream: &str) -> Vec<(&str, &str)> {
        let rules = self.rules.iter().filter(|rule| **rule.upstream.name() == *upstream);
        let models = rules.flat_map(|rule| {
            let models = match &rule.upstream_model {
                Some(model) => vec![model.as_str()],
                None => rule.names.literals().collect(),
            };
            models.into_iter().map(|model| (rule.name.as_str(), model))
        });
        models.collect()
    }

    fn rule(&self, format: ApiFormat, model: &str) -> Option<&RouteRule> {
        self.rules.iter().find(|rule| rule.upstream.format() == format && rule.names.contains(model))
    }
}

/// The problems with the lengths of the lists. The checks of the file don't see what the registry adds.
fn too_many(config: &LlmProxy) -> Vec<Problem> {
    let lists = [
        ("upstreams", config.upstreams.len(), LlmProxy::MAX_UPSTREAMS),
        ("models", config.models.len(), LlmProxy::MAX_RULES),
    ];
    let problem = |(list, count, most)| {
        let message = format!("there would be {count} `{list}`, and at most {most} can be served");
        (count > most).then(|| Problem::new(format!("/llm/{list}"), message))
    };
    lists.into_iter().filter_map(problem).collect()
}

/// The keys of the file's tenants, for upstreams of the file alone.
fn credentials(config: &LlmProxy) -> Result<HashMap<String, HashMap<String, HeaderValue>>, Problem> {
    let mut credentials = HashMap::with_capacity(config.tenant_credentials.len());
    for (tenant, keys) in &config.tenant_credentials {
        let format_of = |name: &String| {
            let upstream = config.upstreams.iter().find(|upstream| upstream.name == *name);
            upstream.map(|upstream| upstream.format).unwrap_or_default()
        };
        let is_of_file =
            |name: &str| config.upstreams.iter().any(|one| one.name == *name && one.owner == Owner::File);
        let own = keys
            .iter()
            .filter(|(upstream, _)| is_of_file(upstream))
            .map(|(upstream, key)| Ok((upstream.clone(), credential_value(format_of(upstream), key)?)));
        let own = own.collect::<Result<_, String>>();
        let problem = |message| Problem::new("/tenants/list", format!("tenant `{tenant}`: {message}"));
        credentials.insert(tenant.clone(), own.map_err(problem)?);
    }
    Ok(credentials)
}

fn is_allowed(model: &str, tenant: Option<&ModelNames>) -> bool {
    tenant.is_none_or(|names| names.contains(model))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(upstreams: Value, models: Value) -> LlmProxy {
        serde_json::from_value(json!({ "upstreams": upstreams, "models": models })).unwrap()
    }

    fn ours() -> LlmProxy {
        config(
            json!([
                { "name": "openai", "base_url": "https://api.openai.com/v1", "credential": "sk-1" },
                { "name": "vllm", "base_url": "http://vllm:8000/v1" },
            ]),
            json!([
                { "match": "gpt-5-mini", "upstream": "vllm", "as": "mini" },
                { "match": "gpt-*", "upstream": "openai" },
                { "match": "fast", "upstream": "vllm", "as": "Qwen/Qwen3-32B" },
                { "match": "fast", "upstream": "openai" },
            ]),
        )
    }

    fn built(config: &LlmProxy, before: &[&ModelRoutes]) -> ModelRoutes {
        ModelRoutes::build(config, before).unwrap()
    }

    fn names(entries: &[&str]) -> ModelNames {
        let entries: Vec<_> = entries.iter().map(|&entry| entry.to_owned()).collect();
        ModelNames::new("models", &entries).unwrap()
    }

    fn route(routes: &ModelRoutes, model: &str, tenant: Option<&ModelNames>) -> Option<(String, String)> {
        let route = routes.route(ApiFormat::Openai, model, "acme", tenant)?;
        assert_eq!(routes.upstream_name(ApiFormat::Openai, model, tenant), Some(route.upstream.name()));
        Some((route.upstream.name().to_string(), route.model.to_owned()))
    }

    #[test]
    fn the_first_rule_that_matches_routes_a_model() {
        let routes = built(&ours(), &[]);
        let to = |upstream: &str, model: &str| Some((upstream.to_owned(), model.to_owned()));
        assert_eq!(route(&routes, "gpt-5-mini", None), to("vllm", "mini"));
        assert_eq!(route(&routes, "gpt-5", None), to("openai", "gpt-5"));
        assert_eq!(route(&routes, "fast", None), to("vllm", "Qwen/Qwen3-32B"));
        assert_eq!(route(&routes, "claude", None), None);
        assert_eq!(route(&routes, "", None), None);
        assert_eq!(route(&routes, "my-gpt-5", None), None);
    }

    #[test]
    fn a_lower_priority_is_tried_first_and_the_list_decides_between_equal_ones() {
        let mut config = ours();
        for (rule, priority) in config.models.iter_mut().zip([30, 20, 10, 10]) {
            Arc::make_mut(rule).priority = Some(priority);
        }
        let routes = built(&config, &[]);
        let to = |upstream: &str, model: &str| Some((upstream.to_owned(), model.to_owned()));
        assert_eq!(route(&routes, "gpt-5-mini", None), to("openai", "gpt-5-mini"));
        assert_eq!(route(&routes, "fast", None), to("vllm", "Qwen/Qwen3-32B"));
    }

    #[test]
    fn a_tenant_s_list_narrows_the_routes() {
        let routes = built(&ours(), &[]);
        let tenant = names(&["gpt-5*", "claude"]);
        for (model, is_routed) in [("gpt-5", true), ("gpt-5-mini", true), ("gpt-4", false), ("fast", false)] {
            assert_eq!(route(&routes, model, Some(&tenant)).is_some(), is_routed, "{model}");
        }
        assert_eq!(route(&routes, "claude", Some(&tenant)), None, "no rule has it");
        assert_eq!(route(&routes, "gpt-5", Some(&names(&[]))), None, "an empty list has none");
    }

    #[test]
    fn models_without_a_wildcard_are_listed() {
        let routes = built(&ours(), &[]);
        let listed = |tenant: Option<&ModelNames>| {
            routes
                .models(ApiFormat::Openai, tenant)
                .iter()
                .map(|(model, by)| format!("{model} {by}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(listed(None), ["fast vllm", "gpt-5-mini vllm"]);
        assert_eq!(
            listed(Some(&names(&["gpt-*", "gpt-4o", "claude"]))),
            ["gpt-4o openai", "gpt-5-mini vllm"]
        );
        assert!(listed(Some(&names(&[]))).is_empty());
    }

    #[test]
    fn what_a_tenant_may_name_has_globs_where_it_may_name_others() {
        let routes = built(&ours(), &[]);
        let named = |tenant: Option<&ModelNames>| {
            let named = routes.named(ApiFormat::Openai, tenant);
            let text = |model: &NamedModel<'_>| {
                let NamedModel { name, upstream, upstream_model } = model;
                format!("{name} {upstream} {}", upstream_model.unwrap_or("-"))
            };
            named.iter().map(text).collect::<Vec<_>>()
        };
        let all = ["fast vllm Qwen/Qwen3-32B", "gpt-5-mini vllm mini", "gpt-* openai -"];
        assert_eq!(named(None), all);
        assert_eq!(named(Some(&names(&["gpt-4o", "claude"]))), ["gpt-4o openai -"]);
        assert_eq!(named(Some(&names(&["gpt-[45]*"]))), ["gpt-5-mini vllm mini", "gpt-* openai -"]);
        assert!(named(Some(&names(&[]))).is_empty());
        assert!(routes.named(ApiFormat::Anthropic, None).is_empty());
    }

    #[test]
    fn a_client_reaches_the_providers_of_its_api_alone() {
        let routes = built(
            &config(
                json!([
                    { "name": "openai", "base_url": "https://api.openai.com/v1" },
                    { "name": "anthropic", "base_url": "https://api.anthropic.com", "format": "anthropic" },
                ]),
                json!([
                    { "match": "gpt-5", "upstream": "openai" },
                    { "match": "*", "upstream": "openai" },
                    { "match": "claude", "upstream": "anthropic", "as": "claude-5" },
                ]),
            ),
            &[],
        );
        let route = |format, model| routes.route(format, model, "acme", None).map(|route| route.model);
        assert_eq!(route(ApiFormat::Openai, "claude"), Some("claude"), "the rules of other APIs are skipped");
        assert_eq!(route(ApiFormat::Anthropic, "claude"), Some("claude-5"));
        assert_eq!(route(ApiFormat::Anthropic, "gpt-5"), None);
        let listed = |format| routes.models(format, None).into_keys().collect::<Vec<_>>();
        assert_eq!(
            (listed(ApiFormat::Openai), listed(ApiFormat::Anthropic)),
            (vec!["gpt-5"], vec!["claude"])
        );
        assert_eq!(routes.upstream_name(ApiFormat::Anthropic, "gpt-5", None), None);
    }

    #[test]
    fn an_unchanged_upstream_keeps_its_client() {
        let before = built(&ours(), &[]);
        let mut next = ours();
        next.upstreams[1] = Arc::new(ModelUpstream {
            base_url: Some("http://other:8000".into()),
            ..(*next.upstreams[1]).clone()
        });
        next.models.remove(0);
        next.limits.exchanges = 1;
        let after = built(&next, &[&before]);
        let upstream = |routes: &ModelRoutes, model| {
            Arc::clone(routes.route(ApiFormat::Openai, model, "acme", None).unwrap().upstream)
        };
        assert!(Arc::ptr_eq(&upstream(&before, "gpt-4"), &upstream(&after, "gpt-4")));
        assert!(!Arc::ptr_eq(&upstream(&before, "fast"), &upstream(&after, "fast")));
        next.upstreams[0] =
            Arc::new(ModelUpstream { credential: Some("sk-2".into()), ..(*next.upstreams[0]).clone() });
        let rotated = built(&next, &[&after]);
        assert!(!Arc::ptr_eq(&upstream(&after, "gpt-4"), &upstream(&rotated, "gpt-4")), "the key is another");
    }

    #[test]
    fn a_tenant_s_key_goes_to_an_upstream_of_the_file_alone() {
        let mut config = ours();
        let keys = [("openai", "sk-own"), ("vllm", "sk-own")];
        let keys = keys.map(|(upstream, key)| (upstream.to_owned(), key.into()));
        config.tenant_credentials.insert("acme".to_owned(), keys.into());
        Arc::make_mut(&mut config.upstreams[1]).owner = Owner::Api;
        let routes = built(&config, &[]);
        let has_own =
            |model| routes.route(ApiFormat::Openai, model, "acme", None).unwrap().credential.is_some();
        assert_eq!((has_own("gpt-4"), has_own("fast")), (true, false));
    }

    #[test]
    fn too_many_rules_are_a_problem() {
        let mut config = ours();
        config.models = vec![Arc::clone(&config.models[0]); LlmProxy::MAX_RULES];
        built(&config, &[]);
        config.models.push(Arc::clone(&config.models[0]));
        let problems = ModelRoutes::build(&config, &[]).unwrap_err();
        assert_eq!((problems.len(), &*problems[0].pointer), (1, "/llm/models"));
        assert_eq!(problems[0].message, "there would be 257 `models`, and at most 256 can be served");
    }

    #[test]
    fn what_can_t_be_routed_is_a_problem_with_its_place() {
        let upstream = json!([{ "name": "a", "base_url": "http://169.254.169.254" }]);
        let problems = |upstreams, models| ModelRoutes::build(&config(upstreams, models), &[]);
        let places = |built: Result<ModelRoutes, Vec<Problem>>| {
            built.unwrap_err().into_iter().map(|problem| problem.pointer).collect::<Vec<_>>()
        };
        assert_eq!(places(problems(upstream, json!([]))), ["/llm/upstreams/0"]);
        let upstream = json!([{ "name": "a", "base_url": "http://a" }]);
        let models = json!([{ "match": "[", "upstream": "a" }, { "match": "a", "upstream": "b" }]);
        assert_eq!(places(problems(upstream, models)), ["/llm/models/0/match", "/llm/models/1/upstream"]);
    }
}
