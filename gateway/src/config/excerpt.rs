//! Excerpts of the file for error messages: hidden values are shown as `***`, comments are removed, and long
//! lines are cut around the mark.
//!
//! A line is masked once and as a whole, and cut afterwards. So no part of a hidden value is shown, and
//! thousands of mistakes in one line cost little more than one.

use std::collections::HashMap;

use super::tree::{Mark, Region};

/// Longest excerpt of a line, in characters.
const MAX_SHOWN: usize = 100;

const MASK: &str = "***";

/// The lines of a file, and which parts are hidden.
#[derive(Clone)]
pub(super) struct SourceLines {
    texts: Vec<String>,
    /// The regions of hidden values, by each line that they are in.
    hidden: HashMap<usize, Vec<Region>>,
    /// The regions of comments, by each line that they are in.
    comments: HashMap<usize, Vec<Region>>,
}

impl SourceLines {
    pub(super) fn new(text: &str, hidden: Vec<Region>, comments: Vec<Region>) -> Self {
        let texts = breaks(text).map(str::to_owned).collect();
        SourceLines { texts, hidden: by_line(hidden), comments: by_line(comments) }
    }

    /// A line by its number, from 1.
    pub(super) fn line(&self, number: usize) -> Option<SourceLine> {
        let text = self.texts.get(number.checked_sub(1)?)?;
        let places = |all: &HashMap<usize, Vec<Region>>| all.get(&number).cloned().unwrap_or_default();
        Some(SourceLine::new(number, text, &places(&self.hidden), &places(&self.comments)))
    }
}

/// The lines as the YAML parser counts them: a single CR ends a line too, and a byte order mark takes no
/// column.
fn breaks(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// Regions by each line that they are in, in order.
fn by_line(mut regions: Vec<Region>) -> HashMap<usize, Vec<Region>> {
    regions.sort_unstable_by_key(|region| (region.start, region.end));
    // The copies of an aliased value have the same region.
    regions.dedup();
    let mut lines: HashMap<usize, Vec<Region>> = HashMap::new();
    for region in regions {
        for line in region.start.line..=region.end.line {
            lines.entry(line).or_default().push(region);
        }
    }
    lines
}

/// A masked line.
pub(super) struct SourceLine {
    pub(super) number: usize,
    shown: Vec<char>,
    runs: Vec<TextRun>,
}

/// Consecutive characters of the file that are either all shown or all hidden.
struct TextRun {
    /// First column in the file.
    column: usize,
    /// First column in the excerpt.
    at: usize,
    is_hidden: bool,
}

impl SourceLine {
    /// `hidden` and `comments` must be in order.
    fn new(number: usize, text: &str, hidden: &[Region], comments: &[Region]) -> Self {
        let start = |region: &Region| if region.start.line < number { 0 } else { region.start.column };
        let comment = comments.iter().map(start).min().unwrap_or(usize::MAX);
        let (mut shown, mut runs) = (Vec::new(), Vec::<TextRun>::new());
        let (mut hidden, mut hidden_until) = (hidden.iter().peekable(), Mark { line: 0, column: 0 });
        let mut is_indentation = true;
        for (column, character) in text.chars().take(comment).enumerate() {
            let here = Mark { line: number, column };
            while let Some(region) = hidden.next_if(|region| region.start <= here) {
                hidden_until = hidden_until.max(region.end);
            }
            // The region of a block of text includes the indentation of the line after it, which isn't
            // hidden.
            is_indentation &= character == ' ';
            let is_hidden = here < hidden_until && !is_indentation;
            if runs.last().is_none_or(|run| run.is_hidden != is_hidden) {
                runs.push(TextRun { column, at: shown.len(), is_hidden });
                shown.extend(MASK.chars().filter(|_| is_hidden));
            }
            if !is_hidden {
                shown.push(if character.is_control() { ' ' } else { character });
            }
        }
        while shown.last() == Some(&' ') {
            shown.pop();
        }
        SourceLine { number, shown, runs }
    }

    /// The excerpt's column for a column of the file.
    fn at(&self, column: usize) -> usize {
        let runs = self.runs.partition_point(|run| run.column <= column);
        let at = match self.runs[..runs].last() {
            None => 0,
            Some(run) if !run.is_hidden => run.at + (column - run.column),
            Some(run) if run.column == column => run.at,
            Some(run) => run.at + MASK.len(),
        };
        at.min(self.shown.len())
    }

    /// The line, with a mark under the region that begins in it.
    pub(super) fn excerpt(&self, region: Region) -> String {
        let from = self.at(region.start.column);
        let to = if region.end.line > self.number { self.shown.len() } else { self.at(region.end.column) };
        let (shown, from, to) = cut(&self.shown, from, to.max(from + 1));
        let gutter = " ".repeat(self.number.to_string().len());
        let mark = " ".repeat(from) + &"^".repeat(to - from);
        format!("  {} | {shown}\n  {gutter} | {mark}\n", self.number)
    }
}

/// Cuts a long line to the part around the mark.
fn cut(shown: &[char], from: usize, to: usize) -> (String, usize, usize) {
    if shown.len() <= MAX_SHOWN {
        return (shown.iter().collect(), from, to);
    }
    let first = from.saturating_sub(MAX_SHOWN / 2).min(shown.len().saturating_sub(MAX_SHOWN));
    let last = (first + MAX_SHOWN).min(shown.len());
    let text: String = shown[first..last].iter().collect();
    let (left, right) = (if first > 0 { "..." } else { "" }, if last < shown.len() { "..." } else { "" });
    let shift = |column: usize| column.min(last) - first + left.len();
    let (from, to) = (shift(from), shift(to));
    (format!("{left}{text}{right}"), from, to.max(from + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(start: (usize, usize), end: (usize, usize)) -> Region {
        let mark = |(line, column)| Mark { line, column };
        Region { start: mark(start), end: mark(end) }
    }

    /// A simple model: the masked line, whose visible columns are all `.`, and the position of each column in
    /// it.
    fn by_column(line: usize, length: usize, hidden: &[Region]) -> (String, Vec<usize>) {
        let (mut shown, mut places, mut before) = (String::new(), Vec::new(), false);
        for column in 0..length {
            let here = Mark { line, column };
            let is_hidden = hidden.iter().any(|region| region.start <= here && here < region.end);
            places.push(shown.len());
            match (is_hidden, before) {
                (false, _) => shown.push('.'),
                (true, false) => shown += MASK,
                (true, true) => {}
            }
            before = is_hidden;
        }
        (shown, places)
    }

    #[test]
    fn lines_end_where_yaml_ends_them() {
        let lines = |text| breaks(text).collect::<Vec<_>>();
        assert_eq!(lines("\u{feff}a\rb\r\nc\n\nd\n"), ["a", "b", "c", "", "d"]);
        assert_eq!(lines("a\r\r\nb\r"), ["a", "", "b"]);
        assert_eq!(lines("a\u{85}b\u{2028}c"), ["a\u{85}b\u{2028}c"]);
    }

    proptest! {
        /// Regions may overlap: an anchored value within a dropped one has its own region at its alias.
        #[test]
        fn each_hidden_column_is_hidden_and_each_other_one_is_found(
            length in 1..60_usize,
            hidden in prop::collection::vec(((1..4_usize, 0..60_usize), (1..4_usize, 0..60_usize)), 0..6),
        ) {
            let hidden: Vec<_> = hidden.into_iter().map(|(a, b)| region(a.min(b), a.max(b))).collect();
            let (expected, places) = by_column(2, length, &hidden);
            let text = format!("a\n{}", ".".repeat(length));
            let line = SourceLines::new(&text, hidden, Vec::new()).line(2).expect("it is there");
            prop_assert_eq!(line.shown.iter().collect::<String>(), expected);
            let found: Vec<_> = (0..length).map(|column| line.at(column)).collect();
            prop_assert_eq!(found, places);
        }

        #[test]
        fn an_excerpt_shows_the_mark_and_no_part_of_what_is_hidden(
            before in 0..300_usize, hidden in 1..300_usize, after in 0..300_usize, at in 0..900_usize,
        ) {
            let text = ".".repeat(before) + &"s".repeat(hidden) + &".".repeat(after);
            let secret = region((1, before), (1, before + hidden));
            let lines = SourceLines::new(&text, vec![secret], Vec::new());
            let excerpt = lines.line(1).expect("it is there").excerpt(region((1, at), (1, at + 5)));
            prop_assert!(!excerpt.contains('s') && excerpt.contains('^'), "{}", excerpt);
            prop_assert!(excerpt.lines().all(|line| line.len() <= MAX_SHOWN + 20), "{}", excerpt);
        }
    }
}
