//! Parses the file into a tree in which every key and value has its place. It is read once, from the parser's
//! events. Whatever YAML leaves open is restricted here: duplicate keys, tags, merge keys and further
//! documents are rejected, and aliases are limited.

use std::collections::HashMap;

use serde_json::{Number, Value};
use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span as Scanned};

use crate::json::pointer::{self, child};

/// Maximum nesting of mappings and lists.
const MAX_DEPTH: usize = 64;

/// Most keys and values, with aliases expanded. Ten thousand tenants with twenty settings each are 400,000.
const MAX_NODES: usize = 500_000;

/// A place in the file: line from 1, column from 0, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// From the first character to the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: Mark,
    pub(super) end: Mark,
}

impl From<Scanned> for Region {
    fn from(span: Scanned) -> Self {
        Region {
            start: Mark { line: span.start.line(), column: span.start.col() },
            end: Mark { line: span.end.line(), column: span.end.col() },
        }
    }
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum ValueOrigin {
    /// Written in the file.
    File,
    /// Written in the file as a reference, with this text, and resolved.
    Reference(String),
    /// The environment variable with this name.
    Variable(String),
}

/// A value and its place. Has no `Debug`, because it holds resolved secrets.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) region: Region,
    pub(super) origin: ValueOrigin,
}

/// The value of a node by YAML 1.2's core schema.
#[derive(Clone)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<NodeMember>),
}

/// A key and its value.
#[derive(Clone)]
pub(super) struct NodeMember {
    pub(super) key: String,
    pub(super) key_region: Region,
    pub(super) value: Node,
}

impl Node {
    /// The tree as JSON, without places.
    pub(super) fn to_json(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(value) => Value::Bool(*value),
            NodeKind::Number(number) => Value::Number(number.clone()),
            NodeKind::Text(text) => Value::String(text.clone()),
            NodeKind::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            NodeKind::Map(members) => Value::Object(
                members.iter().map(|member| (member.key.clone(), member.value.to_json())).collect(),
            ),
        }
    }

    /// Calls `visit` with every scalar and its JSON pointer.
    pub(super) fn scalars<'t>(&'t self, pointer: &str, visit: &mut impl FnMut(&str, &'t Node)) {
        match &self.kind {
            NodeKind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.scalars(&child(pointer, &index.to_string()), visit);
                }
            }
            NodeKind::Map(members) => {
                for member in members {
                    member.value.scalars(&child(pointer, &member.key), visit);
                }
            }
            _ => visit(pointer, self),
        }
    }

    /// Like [`Node::scalars`], with mutable access.
    pub(super) fn scalars_mut(&mut self, pointer: &str, visit: &mut impl FnMut(&str, &mut Node)) {
        match &mut self.kind {
            NodeKind::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    item.scalars_mut(&child(pointer, &index.to_string()), visit);
                }
            }
            NodeKind::Map(members) => {
                for member in members {
                    member.value.scalars_mut(&child(pointer, &member.key), visit);
                }
            }
            _ => visit(pointer, self),
        }
    }
}

/// Finds nodes of one tree by their JSON pointers.
pub(super) struct NodeFinder<'t> {
    root: &'t Node,
    /// The members of each mapping on the way, by key, because thousands of pointers may lead through one
    /// mapping.
    keys: HashMap<*const NodeMember, HashMap<&'t str, &'t NodeMember>>,
}

impl<'t> NodeFinder<'t> {
    pub(super) fn new(root: &'t Node) -> Self {
        NodeFinder { root, keys: HashMap::new() }
    }

    /// The node at a JSON pointer, and the place of its key if it has one.
    pub(super) fn find(&mut self, pointer: &str) -> Option<(&'t Node, Option<Region>)> {
        let mut found = (self.root, None);
        for key in pointer::keys(pointer) {
            found = match &found.0.kind {
                NodeKind::Map(members) => {
                    let by_key = || members.iter().map(|member| (member.key.as_str(), member)).collect();
                    let keys = self.keys.entry(members.as_ptr()).or_insert_with(by_key);
                    let member = keys.get(&*key)?;
                    (&member.value, Some(member.key_region))
                }
                NodeKind::List(items) => (items.get(key.parse::<usize>().ok()?)?, None),
                _ => return None,
            };
        }
        Some(found)
    }
}

/// A YAML error, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlFault {
    pub(super) at: Region,
    pub(super) message: String,
    pub(super) remedy: Option<String>,
}

/// The result of parsing the file.
pub(super) struct ParsedYaml {
    /// `None` if the file is not YAML, or empty.
    pub(super) root: Option<Node>,
    /// The places of comments, which are never shown.
    pub(super) comments: Vec<Region>,
    /// The places of values that are not in the tree because their key was repeated.
    pub(super) dropped: Vec<Region>,
    pub(super) faults: Vec<YamlFault>,
}

/// Parses `text` as one YAML 1.2 document. Continues after errors that are found here, but not after the
/// parser's.
pub(super) fn parse(text: &str) -> ParsedYaml {
    let mut builder = TreeBuilder::default();
    for event in Parser::new_from_str(text) {
        let stop = match event {
            Ok((event, span)) => builder.take(event, span.into()).err(),
            Err(error) => Some(syntax_fault(&error)),
        };
        if let Some(fault) = stop {
            builder.faults.push(fault);
            builder.root = None;
            break;
        }
    }
    let TreeBuilder { root, comments, dropped, faults, .. } = builder;
    ParsedYaml { root, comments, dropped, faults }
}

/// The parser's messages never quote the file.
fn syntax_fault(error: &ScanError) -> YamlFault {
    let at = Mark { line: error.marker().line(), column: error.marker().col() };
    let remedy = match error.kind() {
        ErrorKind::MissingAnchorOrAliasName | ErrorKind::UnknownAnchor => {
            Some("put a `*` that is text in quotes: \"*\"")
        }
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => {
            Some("inside { } and [ ] put a reference in quotes: \"${NAME}\"")
        }
        ErrorKind::UnexpectedCharacter { .. } => Some("write the text in quotes"),
        ErrorKind::MappingValueNotAllowed => {
            Some("check the indentation, and write text that holds `: ` in quotes")
        }
        _ => None,
    };
    YamlFault {
        at: Region { start: at, end: at },
        message: format!("not YAML: {}", error.kind()),
        remedy: remedy.map(Into::into),
    }
}

/// A mapping or list that is still open.
struct OpenNode {
    anchor: usize,
    start: Mark,
    content: OpenContent,
    /// Where each key was first written.
    keys: HashMap<String, usize>,
}

enum OpenContent {
    List(Vec<Node>),
    Map { members: Vec<NodeMember>, key: Option<(String, Region)> },
}

/// An anchored node, with its number of nodes and its depth.
struct AnchoredNode {
    node: Node,
    nodes: usize,
    depth: usize,
}

#[derive(Default)]
struct TreeBuilder {
    root: Option<Node>,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, AnchoredNode>,
    nodes: usize,
    comments: Vec<Region>,
    dropped: Vec<Region>,
    faults: Vec<YamlFault>,
}

impl TreeBuilder {
    fn take(&mut self, event: Event<'_>, region: Region) -> Result<(), YamlFault> {
        match event {
            Event::Comment(..) => self.comments.push(region),
            Event::DocumentStart(..) if self.root.is_some() => {
                return Err(fault(region, "a second document begins here", "keep one document in the file"));
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), region)?;
                if self.awaits_key() {
                    return self.key(text.into_owned(), style, region);
                }
                let kind = if style == ScalarStyle::Plain {
                    plain_scalar(&text).map_err(|message| YamlFault { at: region, message, remedy: None })?
                } else {
                    NodeKind::Text(text.into_owned())
                };
                self.place(Node { kind, region, origin: ValueOrigin::File }, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(anchor, region, tag.is_some(), OpenContent::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                let content = OpenContent::Map { members: Vec::new(), key: None };
                self.begin(anchor, region, tag.is_some(), content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(region)?,
            Event::Alias(id) => self.alias(id, region)?,
            _ => {}
        }
        Ok(())
    }

    fn refuse_tag(&self, tagged: bool, region: Region) -> Result<(), YamlFault> {
        if tagged {
            return Err(fault(
                region,
                "a tag is not supported here",
                "remove the tag; quotes make any value text",
            ));
        }
        Ok(())
    }

    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some(OpenNode { content: OpenContent::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, text: String, style: ScalarStyle, region: Region) -> Result<(), YamlFault> {
        if text == "<<" && style == ScalarStyle::Plain {
            return Err(fault(
                region,
                "`<<` merges no mapping here (it is not YAML 1.2)",
                "write the keys out",
            ));
        }
        self.count(1, region)?;
        if let Some(OpenNode { content: OpenContent::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some((text, region));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        anchor: usize,
        region: Region,
        tagged: bool,
        content: OpenContent,
    ) -> Result<(), YamlFault> {
        self.refuse_tag(tagged, region)?;
        if self.awaits_key() {
            return Err(fault(
                region,
                "a key must be text, not a mapping or a list",
                "write the key as text",
            ));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(region));
        }
        self.open.push(OpenNode { anchor, start: region.start, content, keys: HashMap::new() });
        Ok(())
    }

    fn end(&mut self, region: Region) -> Result<(), YamlFault> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let kind = match open.content {
            OpenContent::List(items) => NodeKind::List(items),
            OpenContent::Map { members, .. } => NodeKind::Map(members),
        };
        let region = Region { start: open.start, end: region.end };
        self.place(Node { kind, region, origin: ValueOrigin::File }, open.anchor)
    }

    fn alias(&mut self, id: usize, region: Region) -> Result<(), YamlFault> {
        if self.awaits_key() {
            return Err(fault(region, "a key must be text, not an alias", "write the key out"));
        }
        // An alias within its own anchor would contain itself.
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(fault(
                region,
                "this alias refers to a value that contains it",
                "write the value out",
            ));
        };
        if self.open.len() + anchored.depth > MAX_DEPTH {
            return Err(too_deep(region));
        }
        let nodes = anchored.nodes;
        self.count(nodes, region)?;
        let node = self.anchors[&id].node.clone();
        self.insert(node)
    }

    fn count(&mut self, nodes: usize, region: Region) -> Result<(), YamlFault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} keys and values, aliases written out");
            return Err(YamlFault { at: region, message, remedy: None });
        }
        Ok(())
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), YamlFault> {
        self.count(1, node.region)?;
        if anchor != 0 {
            let (nodes, depth) = extent(&node);
            self.anchors.insert(anchor, AnchoredNode { node: node.clone(), nodes, depth });
        }
        self.insert(node)
    }

    fn insert(&mut self, node: Node) -> Result<(), YamlFault> {
        let Some(OpenNode { content, keys, .. }) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match content {
            OpenContent::List(items) => items.push(node),
            OpenContent::Map { members, key } => {
                let Some((key, key_region)) = key.take() else { return Ok(()) };
                if let Some(first) = keys.get(&key) {
                    self.dropped.push(node.region);
                    self.faults.push(YamlFault {
                        at: key_region,
                        message: format!("`{key}` is written twice; the first is in line {first}"),
                        remedy: Some("keep one of the two".into()),
                    });
                    return Ok(());
                }
                keys.insert(key.clone(), key_region.start.line);
                members.push(NodeMember { key, key_region, value: node });
            }
        }
        Ok(())
    }
}

fn fault(at: Region, message: &str, remedy: &str) -> YamlFault {
    YamlFault { at, message: message.into(), remedy: Some(remedy.into()) }
}

fn too_deep(at: Region) -> YamlFault {
    YamlFault {
        at,
        message: format!("mappings and lists are nested more than {MAX_DEPTH} deep"),
        remedy: None,
    }
}

/// Number of nodes and depth of a tree.
fn extent(node: &Node) -> (usize, usize) {
    let inner = |extents: &mut dyn Iterator<Item = (usize, usize)>| {
        extents.fold((1, 1), |(nodes, depth), (n, d)| (nodes + n, depth.max(d + 1)))
    };
    match &node.kind {
        NodeKind::List(items) => inner(&mut items.iter().map(extent)),
        NodeKind::Map(members) => inner(&mut members.iter().map(|member| {
            let (nodes, depth) = extent(&member.value);
            (nodes + 1, depth)
        })),
        _ => (1, 0),
    }
}

/// A scalar by the core schema of YAML 1.2 (section 10.3.2), where `yes`, `on` and the like are text.
fn plain_scalar(text: &str) -> Result<NodeKind, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeKind::Null,
        "true" | "True" | "TRUE" => NodeKind::Bool(true),
        "false" | "False" | "FALSE" => NodeKind::Bool(false),
        _ => match number(text) {
            Some(number) => NodeKind::Number(number?),
            None => NodeKind::Text(text.into()),
        },
    })
}

/// Returns `None` if the text isn't a number at all.
fn number(text: &str) -> Option<Result<Number, String>> {
    let out_of_range =
        || Err("this number can't be represented exactly; put it in quotes to make it text".to_owned());
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(out_of_range());
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return Some(u64::from_str_radix(digits, radix).map(Number::from).or_else(|_| out_of_range()));
        }
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        let positive = text.strip_prefix('+').unwrap_or(text);
        let integer =
            positive.parse::<u64>().map(Number::from).or_else(|_| positive.parse::<i64>().map(Number::from));
        return Some(integer.or_else(|_| out_of_range()));
    }
    // Of what `f64` parses, only text that begins with a digit or a point gets here: no `inf`, no `nan`.
    let float: f64 = text.parse().ok()?;
    Some(Number::from_f64(float).map_or_else(out_of_range, Ok))
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
