//! The tools that a plan's plugins provide, looked up by name (docs/protocol.md, section 10).

use std::{borrow::Cow, sync::Arc, time::Duration};

use hookgate_proto::types::v1 as types;

use crate::{
    core::{
        manifest::PointAccess,
        step::OnError,
        tool::{ToolNames, Tools},
    },
    routing::{Access, SideEffects, Step, StepTemplate, plan::ChainElement},
};

/// The tools that a binding provides.
#[derive(Debug)]
pub(super) struct BindingTools {
    /// The names that the plugin's tools may have.
    pub(super) names: Arc<ToolNames>,
    /// The plugin's tools. `None` while it has not been initialised.
    pub(super) tools: Option<Tools>,
    /// The names that the binding doesn't provide.
    pub(super) denied: Option<Arc<ToolNames>>,
}

impl BindingTools {
    fn is_denied(&self, name: &str) -> bool {
        self.denied.as_ref().is_some_and(|denied| denied.contains(name))
    }

    /// The tools without the denied ones.
    pub(super) fn provided(&self) -> impl Iterator<Item = &Arc<types::Tool>> {
        self.tools.iter().flat_map(|tools| tools.iter()).filter(|tool| !self.is_denied(&tool.name))
    }
}

/// The tools of a plan at `before_tool_call`.
#[derive(Debug, Clone, Default)]
pub struct PlanTools {
    providers: Vec<ToolProvider>,
    /// Sorted by the tools' names, each name once.
    tools: Vec<IndexedTool>,
    has_clash: bool,
}

/// A binding whose plugin provides tools.
#[derive(Debug, Clone)]
struct ToolProvider {
    /// It fails closed: nobody else can run the tool.
    step: Step,
    element: Arc<ChainElement>,
}

#[derive(Debug, Clone)]
struct IndexedTool {
    tool: Arc<types::Tool>,
    /// The position of its provider.
    provider: usize,
    /// That of another provider of the same name.
    rival: Option<usize>,
}

/// A tool, and the step that runs it.
#[derive(Debug, Clone, Copy)]
pub struct PlanTool<'p> {
    pub tool: &'p types::Tool,
    pub step: &'p Step,
    /// The step of another plugin, or another binding, that provides the same name. Calls of the tool fail.
    pub rival: Option<&'p Step>,
}

impl PlanTools {
    /// The tools of those `elements` of a chain that provide some.
    pub(super) fn of<'e>(elements: impl Iterator<Item = &'e Arc<ChainElement>>) -> Option<Arc<Self>> {
        let mut plan = PlanTools::default();
        for element in elements {
            let Some(tools) = &element.tools else { continue };
            let provider = plan.providers.len();
            let indexed =
                |tool: &Arc<types::Tool>| IndexedTool { tool: Arc::clone(tool), provider, rival: None };
            plan.tools.extend(tools.provided().map(indexed));
            let step = step(&element.fixed, tools.tools.is_some());
            plan.providers.push(ToolProvider { step, element: Arc::clone(element) });
        }
        if plan.providers.is_empty() {
            return None;
        }
        plan.tools.sort_by(|a, b| (&a.tool.name, a.provider).cmp(&(&b.tool.name, b.provider)));
        let PlanTools { tools, has_clash, .. } = &mut plan;
        tools.dedup_by(|later, first| {
            let is_same = later.tool.name == first.tool.name;
            if is_same {
                first.rival = Some(later.provider);
                *has_clash = true;
            }
            is_same
        });
        plan.tools.shrink_to_fit();
        Some(Arc::new(plan))
    }

    /// Whether two bindings provide the same name.
    pub(super) fn has_clash(&self) -> bool {
        self.has_clash
    }

    /// The tools in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = PlanTool<'_>> {
        let step = |provider: usize| &self.providers[provider].step;
        self.tools.iter().map(move |IndexedTool { tool, provider, rival }| PlanTool {
            tool,
            step: step(*provider),
            rival: rival.map(step),
        })
    }

    /// The steps that run the plugins' tools, in the order of priorities.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.providers.iter().map(|provider| &provider.step)
    }

    /// The step that runs the tool `name`. `None` if no plugin provides it.
    pub fn route(&self, name: &str) -> Option<Cow<'_, Step>> {
        if let Ok(at) = self.tools.binary_search_by(|indexed| indexed.tool.name.as_str().cmp(name)) {
            let IndexedTool { provider, rival, .. } = self.tools[at];
            let step = &self.providers[provider].step;
            return Some(match rival {
                None => Cow::Borrowed(step),
                Some(rival) => Cow::Owned(clashing(step, &self.providers[rival].step, name)),
            });
        }
        let may_provide = |provider: &&ToolProvider| match &provider.element.tools {
            Some(tools) => tools.tools.is_none() && tools.names.contains(name) && !tools.is_denied(name),
            None => false,
        };
        self.providers.iter().find(may_provide).map(|provider| Cow::Borrowed(&provider.step))
    }
}

/// The step that runs a tool. The plugin may give a result, and no patch. Without an offer, the step fails as `not_ready`.
fn step(fixed: &StepTemplate, is_known: bool) -> Step {
    let template = StepTemplate { on_error: OnError::Fail, writable: Some(Arc::default()), ..fixed.clone() };
    let offer = PointAccess::new(Access::Modify, SideEffects::Some);
    Step {
        template: Arc::new(template),
        offer: is_known.then_some(offer),
        not_offered: false,
        reserve: Duration::ZERO,
        group_len: 1,
    }
}

/// A step that fails because `step` and `rival` both provide the tool `name`.
fn clashing(step: &Step, rival: &Step, name: &str) -> Step {
    let fault =
        format!("the bindings `{}` and `{}` both provide the tool `{name}`", step.binding, rival.binding);
    let template = StepTemplate { config_refused: Some(fault.into()), ..(*step.template).clone() };
    Step { template: Arc::new(template), ..step.clone() }
}
