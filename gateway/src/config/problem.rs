//! Problems of a configuration, rendered so that people can find them: place, sentence, line, remedy.
//!
//! Only this code shows parts of the file, so only this code can reveal too much. Values are shown only if
//! the schema knows them and they aren't secret. Comments and resolved references are never shown.

use std::{collections::HashSet, fmt};

use crate::{
    config::{
        excerpt::{SourceLine, SourceLines},
        reference,
        schema::Schema,
        secret_filter::SecretFilter,
        tree::{Mark, Node, NodeFinder, NodeKind, ParsedYaml, Region, ValueOrigin, YamlFault},
    },
    core::{error::Violation, object},
    json::pointer::child,
};

/// Longest sentence shown, since it may quote a value of any length.
const MAX_SENTENCE: usize = 500;

/// Most problems printed: one wrong key may be in ten thousand entries.
const MAX_PRINTED: usize = 100;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer (RFC 6901) to the value, from the root of the configuration.
    pub pointer: String,
    /// What is wrong and what would be right, in one sentence. Values are in backticks.
    pub message: String,
    /// What to write instead, if that is known.
    pub remedy: Option<String>,
    anchor: Anchor,
}

/// What to mark in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Anchor {
    /// The value at the pointer.
    Value,
    /// The key of that value.
    Key,
    /// A region of the file, whatever it contains.
    Region(Region),
    /// Nothing: the problem is in this environment variable.
    Variable(String),
}

impl Problem {
    /// A problem of the value at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { pointer: pointer.into(), message: message.into(), remedy: None, anchor: Anchor::Value }
    }

    /// A problem of the key at `pointer`.
    pub(super) fn at_key(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { anchor: Anchor::Key, ..Problem::new(pointer, message) }
    }

    /// A problem of an environment variable's name.
    pub(super) fn in_variable(name: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { anchor: Anchor::Variable(name.into()), ..Problem::new("", message) }
    }

    /// Converts `violations` to problems.
    pub fn all(violations: Vec<Violation>) -> Vec<Self> {
        violations.into_iter().map(|wrong| Problem::new(wrong.pointer, wrong.message)).collect()
    }

    /// What is wrong, and what to write instead if that is known.
    pub fn sentence(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}: {remedy}", self.message),
            None => self.message.clone(),
        }
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl From<YamlFault> for Problem {
    fn from(fault: YamlFault) -> Self {
        Problem {
            pointer: String::new(),
            message: fault.message,
            remedy: fault.remedy,
            anchor: Anchor::Region(fault.at),
        }
    }
}

/// A place in an object of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlace {
    pub kind: object::ObjectKind,
    pub name: String,
    /// From the object.
    pub pointer: String,
    /// From the root of the file, if it has the same object.
    pub in_file: Option<String>,
}

/// A problem and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedProblem {
    /// The problem, with all secrets removed.
    pub problem: Problem,
    /// Line and column in characters, both from 1. `None` if the problem isn't in the file.
    pub position: Option<(usize, usize)>,
    /// The environment variable that contains the problem, if there is one.
    pub variable: Option<String>,
    /// The registry object that contains the problem, if there is one. If the file has that object too, the problem is
    /// placed in the file.
    pub object: Option<RegistryPlace>,
    /// Where it is, for people: the file with line and column, a variable, or an object of the registry.
    pub place: String,
    /// The complete problem as people read it, on several lines.
    rendered: String,
}

impl LocatedProblem {
    /// Where it is, what is wrong, and what to write instead, in one line.
    pub fn sentence(&self) -> String {
        let Problem { pointer, .. } = &self.problem;
        let pointer = if pointer.is_empty() { String::new() } else { format!("{pointer}: ") };
        format!("{}: {pointer}{}", self.place, self.problem.sentence())
    }
}

impl fmt::Display for LocatedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// All problems of a configuration, in the order of the file; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<LocatedProblem>);

impl Problems {
    /// A problem without a place in a file.
    pub(crate) fn nowhere(file: &str, message: impl Into<String>, remedy: &str) -> Self {
        let problem = Problem::new("", message).remedy(remedy);
        let rendered = format!("{file}: {}\n  = {remedy}\n", problem.message);
        let (position, place) = (None, file.to_owned());
        Problems(vec![LocatedProblem { problem, position, variable: None, object: None, place, rendered }])
    }

    pub fn iter(&self) -> std::slice::Iter<'_, LocatedProblem> {
        self.0.iter()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Each problem as printed. If there are many, only the first ones, and a count.
    pub fn printed(&self) -> Vec<String> {
        let first = self.0.iter().take(MAX_PRINTED);
        let mut printed: Vec<_> = first.map(|located| located.to_string().trim_end().to_owned()).collect();
        if self.0.len() > MAX_PRINTED {
            printed.push(self.sum());
        }
        printed
    }

    fn sum(&self) -> String {
        match self.0.len() {
            1 => "1 problem in the configuration".to_owned(),
            n @ ..=MAX_PRINTED => format!("{n} problems in the configuration"),
            n => format!("{n} problems in the configuration; only the first {MAX_PRINTED} are shown"),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for located in self.0.iter().take(MAX_PRINTED) {
            writeln!(f, "{located}")?;
        }
        f.write_str(&self.sum())
    }
}

impl std::error::Error for Problems {}

/// What problems are rendered against: the file, its tree, and which parts are hidden.
#[derive(Clone)]
pub(super) struct ProblemSource {
    file: String,
    lines: SourceLines,
    root: Option<Node>,
    /// The values of resolved references.
    secrets: SecretFilter,
}

impl ProblemSource {
    /// The file as written; see [`ProblemSource::resolved`].
    pub(super) fn new(file: String, text: &str, parsed: &ParsedYaml, schema: &Schema) -> Self {
        let mut hidden = parsed.dropped.clone();
        if let Some(root) = &parsed.root {
            root.scalars("", &mut |pointer, node| {
                let default = matches!(&node.kind, NodeKind::Text(text) if reference::has_default(text));
                let credentials =
                    matches!(&node.kind, NodeKind::Text(text) if reference::without_credentials(text).is_some());
                if default || credentials || !schema.shows(pointer) {
                    hidden.push(node.region);
                }
            });
        }
        let lines = SourceLines::new(text, hidden, parsed.comments.clone());
        ProblemSource {
            file,
            lines,
            root: parsed.root.clone(),
            secrets: SecretFilter::new(std::iter::empty()),
        }
    }

    /// Sets the tree with resolved references and applied environment variables.
    pub(super) fn resolved(&mut self, root: &Node) {
        let mut secrets = Vec::new();
        root.scalars("", &mut |_, node| match (&node.origin, &node.kind) {
            (ValueOrigin::Reference(_), NodeKind::Text(text)) => secrets.push(text.clone()),
            (ValueOrigin::Reference(_), NodeKind::Number(number)) => secrets.push(number.to_string()),
            (_, NodeKind::Text(text)) if reference::without_credentials(text).is_some() => {
                secrets.push(text.clone())
            }
            _ => {}
        });
        self.root = Some(root.clone());
        self.secrets = SecretFilter::new(secrets.iter().map(String::as_str));
    }

    /// That tree, if the file is YAML.
    pub(super) fn root(&self) -> Option<&Node> {
        self.root.as_ref()
    }

    /// A line of the file, as an origin refers to it.
    pub(super) fn line(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }

    /// `text` without the values of references.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        self.secrets.without_long(text)
    }

    /// Renders `problems` against the file, in its order and without duplicates. `object` returns the place of a
    /// pointer in an object of a registry.
    pub(super) fn render(
        &self,
        problems: &[Problem],
        object: impl Fn(&str) -> Option<RegistryPlace>,
    ) -> Problems {
        let problems: Vec<_> = problems
            .iter()
            .map(|problem| {
                let (object, mut problem) = (object(&problem.pointer), problem.clone());
                if let Some(RegistryPlace { pointer, in_file, .. }) = &object {
                    problem.pointer = in_file.as_ref().unwrap_or(pointer).clone();
                }
                (object, problem)
            })
            .collect();
        let mut finder = self.root.as_ref().map(NodeFinder::new);
        let mut placed: Vec<_> = problems
            .iter()
            .map(|(object, problem)| {
                let place = match object {
                    Some(object) if object.in_file.is_none() => ProblemLocation::Object(object),
                    _ => place(finder.as_mut(), problem),
                };
                (place, object, problem)
            })
            .collect();
        placed.sort_by_key(|(place, ..)| place.position().unwrap_or((usize::MAX, 0)));
        let (mut seen, mut line) = (HashSet::new(), None);
        let located = placed.into_iter().map(|(place, object, problem)| {
            let object = object.as_ref().map(|object| self.redact_place(object));
            LocatedProblem { object, ..self.locate(place, problem, &mut line) }
        });
        Problems(located.filter(|located| seen.insert(located.rendered.clone())).collect())
    }

    /// `line` is the line that was shown last: the next problem may be in it too.
    fn locate(
        &self,
        place: ProblemLocation<'_>,
        problem: &Problem,
        line: &mut Option<SourceLine>,
    ) -> LocatedProblem {
        let position = place.position();
        let (mut variable, mut excerpt) = (None, String::new());
        let place = match place {
            ProblemLocation::File(region) => {
                // Without a tree it isn't known which parts of the line are secret.
                if self.root.is_some() {
                    excerpt = self.excerpt(region, line);
                }
                format!("{}:{}:{}", self.file, region.start.line, region.start.column + 1)
            }
            ProblemLocation::Variable(name) => {
                variable = Some(name.to_owned());
                format!("environment variable {name}")
            }
            ProblemLocation::Object(RegistryPlace { kind, name, .. }) => {
                format!("{kind} `{name}` in the registry")
            }
            ProblemLocation::Nowhere => self.file.clone(),
        };
        let problem = self.redact(problem);
        let pointer =
            if problem.pointer.is_empty() { String::new() } else { format!("{}: ", problem.pointer) };
        let remedy = problem.remedy.as_ref().map(|remedy| format!("  = {remedy}\n")).unwrap_or_default();
        let rendered = format!("{place}: {pointer}{}\n{excerpt}{remedy}", problem.message);
        LocatedProblem { problem, position, variable, object: None, place, rendered }
    }

    fn excerpt(&self, region: Region, line: &mut Option<SourceLine>) -> String {
        let number = region.start.line;
        if line.as_ref().is_none_or(|line| line.number != number) {
            *line = self.lines.line(number);
        }
        line.as_ref().map(|line| line.excerpt(region)).unwrap_or_default()
    }

    fn redact(&self, problem: &Problem) -> Problem {
        Problem {
            pointer: self.clean(&problem.pointer),
            message: self.clean(&problem.message),
            remedy: problem.remedy.as_deref().map(|remedy| self.clean(remedy)),
            anchor: problem.anchor.clone(),
        }
    }

    fn redact_place(&self, place: &RegistryPlace) -> RegistryPlace {
        RegistryPlace {
            pointer: self.clean(&place.pointer),
            in_file: place.in_file.as_deref().map(|pointer| self.clean(pointer)),
            ..place.clone()
        }
    }

    fn clean(&self, text: &str) -> String {
        let text = self.secrets.without(text);
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SENTENCE).collect()
    }
}

enum ProblemLocation<'p> {
    /// In the file.
    File(Region),
    /// In the environment variable with this name.
    Variable(&'p str),
    /// In an object that only the registry has.
    Object(&'p RegistryPlace),
    Nowhere,
}

impl ProblemLocation<'_> {
    /// Line and column, both from 1.
    fn position(&self) -> Option<(usize, usize)> {
        match self {
            ProblemLocation::File(Region { start: Mark { line, column }, .. }) => Some((*line, column + 1)),
            ProblemLocation::Variable(_) | ProblemLocation::Object(_) | ProblemLocation::Nowhere => None,
        }
    }
}

/// The place that `problem` points to in a tree, or the closest one that contains it.
fn place<'p>(finder: Option<&mut NodeFinder<'p>>, problem: &'p Problem) -> ProblemLocation<'p> {
    match &problem.anchor {
        Anchor::Region(region) => return ProblemLocation::File(*region),
        Anchor::Variable(name) => return ProblemLocation::Variable(name),
        Anchor::Value | Anchor::Key => {}
    }
    let Some(finder) = finder else { return ProblemLocation::Nowhere };
    let mut pointer = problem.pointer.as_str();
    loop {
        if let Some((node, key)) = finder.find(pointer) {
            if let ValueOrigin::Variable(name) = &node.origin {
                return ProblemLocation::Variable(name);
            }
            // Mappings, lists and empty values are marked by their key.
            let scalar = !matches!(node.kind, NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_));
            let whole = key.filter(|_| problem.anchor == Anchor::Key || !scalar);
            let own = if scalar { node.region } else { Region { end: node.region.start, ..node.region } };
            return ProblemLocation::File(whole.unwrap_or(own));
        }
        let Some(end) = pointer.rfind('/') else { return ProblemLocation::Nowhere };
        pointer = &pointer[..end];
    }
}

/// The closest of `known` to a misspelled `word`.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let length = word.chars().count();
    let far = (length / 3).clamp(1, 3);
    let word = word.to_lowercase();
    known
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= far)
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, candidate)| candidate)
}

/// A "did you mean" sentence with the closest of `known`.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The pointer to the item `index` of the list at `pointer`.
pub(super) fn item(pointer: &str, index: usize) -> String {
    child(pointer, &index.to_string())
}
