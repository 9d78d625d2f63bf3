//! Reads the files of the corpus. Their format is described in tests/corpus/README.md.

use std::{fs, ops::Range, path::Path};

use super::values::Values;

/// How many lines a template with a placeholder gives.
const REPETITIONS: u64 = 6;

/// A line of a file, before its values are made.
#[derive(Debug)]
pub(crate) struct Template {
    /// The name of a detector, or `clean`.
    pub(crate) kind: String,
    text: String,
    /// The file and the number of the line, for messages.
    pub(crate) place: String,
}

/// A text, and what has to be hidden in it.
#[derive(Debug)]
pub(crate) struct Line {
    /// What a plugin gets.
    pub(crate) text: String,
    /// What is between the marks, in order.
    pub(crate) marks: Vec<Range<usize>>,
}

/// The templates of all files in a folder.
pub(crate) fn templates(folder: &Path) -> Vec<Template> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut templates = Vec::new();
    for file in files {
        let content = fs::read_to_string(&file).expect("a file of the corpus is UTF-8");
        for (index, line) in content.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{}:{}", file.display(), index + 1);
            let (kind, text) = line.split_once(" | ").unwrap_or_else(|| panic!("{place}: no kind"));
            templates.push(Template { kind: kind.to_owned(), text: text.replace('⏎', "\n"), place });
        }
    }
    templates
}

impl Template {
    /// The lines that it stands for: several if it has a placeholder.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let count = if self.text.contains('⟨') { REPETITIONS } else { 1 };
        (0..count).map(|repetition| self.line(&mut Values::new(&self.text, repetition))).collect()
    }

    fn line(&self, values: &mut Values) -> Line {
        let (mut text, mut marks, mut open) = (String::new(), Vec::new(), None);
        let mut rest = self.text.as_str();
        while let Some(at) = rest.find(['«', '»', '⟨', '⟩']) {
            text.push_str(&rest[..at]);
            let sign = rest[at..].chars().next().expect("a sign was found");
            rest = &rest[at + sign.len_utf8()..];
            match (sign, open) {
                ('«', None) => open = Some(text.len()),
                ('»', Some(start)) if start < text.len() => {
                    marks.push(start..text.len());
                    open = None;
                }
                ('⟨', _) => {
                    let (name, after) = rest.split_once('⟩').unwrap_or_else(|| self.fail("unbalanced ⟨"));
                    text.push_str(&values.make(name).unwrap_or_else(|| self.fail("unknown placeholder")));
                    rest = after;
                }
                _ => self.fail("unbalanced marks"),
            }
        }
        text.push_str(rest);
        if open.is_some() || marks.is_empty() != (self.kind == "clean") {
            self.fail("unbalanced marks, or none");
        }
        Line { text, marks }
    }

    fn fail(&self, fault: &str) -> ! {
        panic!("{}: {fault}", self.place)
    }
}
