//! Plans an answer's new output: which items stay, which item takes a changed text, and which messages are added.

use std::ops::Range;

use super::{
    answer::{OutputKind, ResponsesAnswer, is_thought, parts, text_member, thoughts},
    withhold::{type_name, withheld_item},
};
use crate::llm::{
    answer_parts::Piece,
    format::{CallEdit, ChoiceEdit},
    value::string_member,
    withheld::{EMPTIED_TEXT, WITHHELD_TEXT},
};

/// What the answer is rendered for.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenderOptions {
    /// The client parses the text, so that no message stands there.
    pub(super) expects_json: bool,
    /// What no plugin saw is withheld.
    pub(super) is_guarded: bool,
}

/// What becomes of a content part with text, or of a thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartChange<'e> {
    /// It stays.
    Unchanged,
    /// It has another text, which isn't empty.
    Text(&'e str),
    /// It becomes a refusal.
    Refusal(&'e str),
    /// It goes.
    Removed,
}

impl<'e> PartChange<'e> {
    fn new(text: Option<&'e str>) -> Self {
        match text {
            None => PartChange::Unchanged,
            Some("") => PartChange::Removed,
            Some(text) => PartChange::Text(text),
        }
    }
}

/// What becomes of the items of an output.
#[derive(Debug)]
pub(super) struct OutputPlan<'e> {
    /// Whether each item stays.
    kept: Vec<bool>,
    /// What becomes of each content part of messages, and of each thought of reasoning.
    parts: Vec<Vec<PartChange<'e>>>,
    /// The reasoning item that gets a thought, and the thought.
    added_thought: Option<(usize, &'e str)>,
    /// Texts that are added, each as a message in front of the item with this index.
    added: Vec<(usize, String)>,
    /// Whether the first of them is the model's answer, and not the gateway's word.
    adds_answer: bool,
    /// The names of items that are withheld.
    withheld: Vec<String>,
}

/// The items of an output, and what plugins changed.
struct Output<'a, 'e> {
    kinds: &'a [OutputKind],
    items: &'a [&'a str],
    /// The note in place of each item, if it is a call that is taken out.
    notes: Vec<Option<&'e str>>,
    options: RenderOptions,
}

impl<'e> OutputPlan<'e> {
    /// The plan for an edit of an answer with these items.
    pub(super) fn new(
        answer: &ResponsesAnswer,
        items: &[&str],
        edit: &'e ChoiceEdit,
        options: RenderOptions,
    ) -> Self {
        let kinds = &answer.items;
        let output = Output { kinds, items, notes: notes(kinds, &edit.calls), options };
        let changed = |kind: &OutputKind, piece: &Option<Piece>| {
            let (parts, edits) = match kind {
                OutputKind::Reasoning => (&answer.parts.thoughts, &edit.thoughts),
                _ => (&answer.parts.texts, &edit.texts),
            };
            PartChange::new(piece.and_then(|piece| piece.changed(parts, edits)))
        };
        let parts = kinds.iter().zip(&answer.pieces);
        let parts = parts.map(|(kind, pieces)| pieces.iter().map(|piece| changed(kind, piece)).collect());
        let mut plan = OutputPlan {
            kept: Vec::new(),
            parts: parts.collect(),
            added_thought: None,
            added: Vec::new(),
            adds_answer: false,
            withheld: Vec::new(),
        };
        let mut added = answer.parts.added_text(&edit.texts);
        let speaker = output.speaker();
        // A text that plugins added stands where the model left room for one.
        if let Some((item, part)) = speaker.filter(|_| added.is_some()) {
            plan.parts[item][part] = PartChange::new(added.take());
        }
        plan.keep(&output);
        if added.is_none() && output.notes.iter().all(Option::is_none) && !plan.has_words(kinds) {
            plan.keep_from_silence(speaker, options);
        }
        plan.drop_thoughts_to_nothing(&output);
        plan.add(&output, added);
        let thought = answer.parts.added_thought(&edit.thoughts);
        plan.added_thought = thought.and_then(|thought| Some((plan.thinker(&output)?, thought)));
        plan
    }

    /// Whether an item stays.
    pub(super) fn is_kept(&self, index: usize) -> bool {
        self.kept[index]
    }

    /// What becomes of each content part of a message, or of each thought of a reasoning item.
    pub(super) fn part_changes(&self, index: usize) -> &[PartChange<'e>] {
        &self.parts[index]
    }

    /// The thought that a reasoning item gets.
    pub(super) fn added_thought(&self, index: usize) -> Option<&'e str> {
        self.added_thought.filter(|(place, _)| *place == index).map(|(_, thought)| thought)
    }

    /// The texts to add, each as a message in front of the item with this index.
    pub(super) fn added(&self) -> &[(usize, String)] {
        &self.added
    }

    /// Whether an added text is the model's answer, and not the gateway's word.
    pub(super) fn is_answer(&self, number: usize) -> bool {
        self.adds_answer && number == 0
    }

    /// Whether the answer says something else than before.
    pub(super) fn changes_text(&self, kinds: &[OutputKind]) -> bool {
        let is_changed =
            |parts: &Vec<PartChange<'_>>| parts.iter().any(|part| *part != PartChange::Unchanged);
        let mut messages = self.parts.iter().zip(kinds).filter(|(_, kind)| **kind == OutputKind::Message);
        !self.added.is_empty() || messages.any(|(parts, _)| is_changed(parts))
    }

    /// The names of the items that are withheld.
    pub(super) fn into_withheld(self) -> Vec<String> {
        self.withheld
    }

    /// Decides which items stay, apart from reasoning.
    fn keep(&mut self, output: &Output<'_, 'e>) {
        for (index, (kind, item)) in output.kinds.iter().copied().zip(output.items).enumerate() {
            let name = withheld_item(kind, item).filter(|_| output.options.is_guarded);
            let is_kept = match kind {
                OutputKind::Message => output.has_parts(item, &self.parts[index]),
                OutputKind::Reasoning => true,
                OutputKind::Call => output.notes[index].is_none(),
                OutputKind::Other => name.is_none(),
            };
            self.withheld.extend(name);
            if kind == OutputKind::Message && !is_kept {
                // What is left of it was withheld part by part.
                self.withheld.extend(parts(item).filter(|part| text_member(part).is_none()).map(type_name));
            }
            self.kept.push(is_kept);
        }
    }

    /// Whether an item is left that is no reasoning.
    fn has_words(&self, kinds: &[OutputKind]) -> bool {
        let mut left = self.kept.iter().zip(kinds);
        left.any(|(is_kept, kind)| *is_kept && *kind != OutputKind::Reasoning)
    }

    /// Says why nothing is left, if there was something. Agents ask the model again and again if an answer has no message.
    fn keep_from_silence(&mut self, speaker: Option<(usize, usize)>, options: RenderOptions) {
        match speaker {
            Some((item, part)) if self.parts[item][part] == PartChange::Removed => {
                self.parts[item][part] = match options.expects_json {
                    // A client that parses the text would parse the mark.
                    true => PartChange::Refusal(EMPTIED_TEXT),
                    false => PartChange::Text(EMPTIED_TEXT),
                };
                self.kept[item] = true;
            }
            _ if self.kept.contains(&false) => {
                self.added.push((self.kept.len(), WITHHELD_TEXT.to_owned()));
            }
            _ => {}
        }
    }

    /// Takes out reasoning that led only to items that are taken out: providers refuse a history in which nothing follows it.
    fn drop_thoughts_to_nothing(&mut self, output: &Output<'_, 'e>) {
        for run in output.runs() {
            let rest = run.start + output.thoughts(&run)..run.end;
            if !rest.is_empty() && self.kept[rest.clone()].iter().all(|is_kept| !is_kept) {
                self.kept[run.start..rest.start].fill(false);
            }
        }
    }

    /// Adds a text, and the notes about refused calls, those of a run in one message. They stand in front of the calls that are left:
    /// providers refuse a history with a message between a call and its result.
    fn add(&mut self, output: &Output<'_, 'e>, text: Option<&str>) {
        let end = output.items.len();
        let is_kept_call = |index: &usize| self.kept[*index] && output.kinds[*index] == OutputKind::Call;
        let mut notes = Vec::new();
        for run in output.runs() {
            let lines: Vec<&str> = output.notes[run.clone()].iter().copied().flatten().collect();
            if lines.is_empty() {
                continue;
            }
            let call = run.clone().find(is_kept_call);
            let place = call.or_else(|| (run.end..end).find(|index| self.kept[*index])).unwrap_or(end);
            notes.push((place, lines.join("\n")));
        }
        if let Some(text) = text {
            let call = (0..end).find(is_kept_call).unwrap_or(end);
            let place = notes.first().map_or(call, |(place, _)| call.min(*place));
            self.added.push((place, text.to_owned()));
            self.adds_answer = true;
        }
        // Those of refusals stand alone.
        if !output.options.expects_json {
            self.break_lines(output, &mut notes);
        }
        self.added.append(&mut notes);
    }

    /// Keeps notes, each with its place, apart from other texts: clients join the texts of messages.
    fn break_lines(&self, output: &Output<'_, 'e>, notes: &mut [(usize, String)]) {
        let says = |index: &usize| self.kept[*index] && self.says_something(output, *index);
        let texts: Vec<usize> = (0..output.items.len()).filter(says).collect();
        let places: Vec<usize> = notes.iter().map(|(place, _)| *place).collect();
        for (number, (place, note)) in notes.iter_mut().enumerate() {
            let texts_before = texts.partition_point(|text| *text < *place);
            if texts_before > 0 || number > 0 || !self.added.is_empty() {
                note.insert(0, '\n');
            }
            // The next note begins with a line of its own.
            let next_note = places.get(number + 1);
            if texts.get(texts_before).is_some_and(|text| next_note.is_none_or(|place| text < place)) {
                note.push('\n');
            }
        }
    }

    /// Whether a message has text after the change.
    fn says_something(&self, output: &Output<'_, 'e>, index: usize) -> bool {
        if output.kinds[index] != OutputKind::Message {
            return false;
        }
        parts(output.items[index]).zip(&self.parts[index]).any(|(part, change)| match change {
            PartChange::Text(_) | PartChange::Refusal(_) => true,
            PartChange::Removed => false,
            PartChange::Unchanged => text_member(part)
                .and_then(|name| string_member(part, name))
                .is_some_and(|text| !text.is_empty()),
        })
    }

    /// The reasoning item that takes an added thought: the first with text that is left, or else the first.
    fn thinker(&self, output: &Output<'_, 'e>) -> Option<usize> {
        let is_left = |index: &usize| self.kept[*index] && output.kinds[*index] == OutputKind::Reasoning;
        let has_text = |index: &usize| thoughts(output.items[*index]).any(is_thought);
        let mut left = (0..output.items.len()).filter(is_left);
        let first = left.clone().next();
        left.find(has_text).or(first)
    }
}

impl Output<'_, '_> {
    /// The message and its part that take a text that no part has: the message with the final answer, unless it only refuses; or else
    /// the first with text.
    fn speaker(&self) -> Option<(usize, usize)> {
        let taker = |index: usize| {
            let is_message = self.kinds[index] == OutputKind::Message;
            Some((index, taker(self.items[index]).filter(|_| is_message)?))
        };
        let is_answer = |(index, _): &(usize, usize)| {
            string_member(self.items[*index], "phase").as_deref() == Some("final_answer")
                && parts(self.items[*index]).any(|part| text_member(part) == Some("text"))
        };
        let mut messages = (0..self.items.len()).filter_map(taker);
        let first = messages.clone().next();
        messages.find(is_answer).or(first)
    }

    /// Whether a message has parts left. One that had none stays.
    fn has_parts(&self, message: &str, changes: &[PartChange<'_>]) -> bool {
        let is_left = |(part, change): (&str, &PartChange<'_>)| match text_member(part) {
            Some(_) => *change != PartChange::Removed,
            None => !self.options.is_guarded,
        };
        parts(message).next().is_none() || parts(message).zip(changes).any(is_left)
    }

    /// The runs of the output: reasoning, and what it led to, up to the next reasoning.
    fn runs(&self) -> Vec<Range<usize>> {
        let is_start = |index: &usize| {
            *index > 0
                && self.kinds[*index] == OutputKind::Reasoning
                && self.kinds[*index - 1] != OutputKind::Reasoning
        };
        let end = self.kinds.len();
        let starts: Vec<usize> = std::iter::once(0).chain((0..end).filter(is_start)).collect();
        let ends = starts.iter().copied().skip(1).chain([end]);
        starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
    }

    /// How many reasoning items a run begins with.
    fn thoughts(&self, run: &Range<usize>) -> usize {
        self.kinds[run.clone()].iter().take_while(|kind| **kind == OutputKind::Reasoning).count()
    }
}

/// The part of a message that takes another text: the first with text that is no refusal, or else the first refusal.
fn taker(message: &str) -> Option<usize> {
    let first = |wanted: &str| parts(message).position(|part| text_member(part) == Some(wanted));
    first("text").or_else(|| first("refusal"))
}

/// The note in place of each item.
fn notes<'e>(kinds: &[OutputKind], edits: &'e [CallEdit]) -> Vec<Option<&'e str>> {
    let mut edits = edits.iter();
    let note = |kind: &OutputKind| match (kind, (*kind == OutputKind::Call).then(|| edits.next()).flatten()) {
        (_, Some(CallEdit::Note(note))) => Some(note.as_str()),
        _ => None,
    };
    kinds.iter().map(note).collect()
}
