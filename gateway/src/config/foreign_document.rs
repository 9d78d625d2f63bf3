//! Reads YAML files of other systems, for importing them. A type says what such a file holds; its mistakes are shown
//! like those of a configuration. Nothing here knows what the file is for.

use std::{collections::BTreeSet, path::Path};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::config::{
    load,
    problem::{Problem, ProblemSource, Problems},
    schema::Schema,
    tree,
    validate::validate,
};

/// The source for showing problems in a file of another system.
pub struct ForeignDocument {
    source: ProblemSource,
}

impl ForeignDocument {
    /// Reads the file at `path` as a `T`. The JSON Schema of `T` also says which values problems may show: the scalars
    /// that it knows. References are not resolved.
    ///
    /// # Errors
    /// All mistakes of the file, each with its place.
    pub fn load<T: DeserializeOwned + JsonSchema>(path: &Path) -> Result<(T, Self), Problems> {
        let file = path.display().to_string();
        let text = load::read(path, "give the path of a file that you may read")?;
        Self::read(file, &text)
    }

    fn read<T: DeserializeOwned + JsonSchema>(file: String, text: &str) -> Result<(T, Self), Problems> {
        let schema = Schema::from_type::<T>();
        let parsed = tree::parse(text);
        let source = ProblemSource::new(file, text, &parsed, &schema);
        let mut problems: Vec<Problem> = parsed.faults.into_iter().map(Problem::from).collect();
        let Some(root) = parsed.root else {
            if problems.is_empty() {
                problems.push(Problem::new("", "the file is empty"));
            }
            return Err(source.render(&problems, |_| None));
        };
        let value = root.to_json();
        problems.append(&mut validate(&value, &schema, &BTreeSet::new()).problems);
        if problems.is_empty() {
            match serde_json::from_value(value) {
                Ok(content) => return Ok((content, ForeignDocument { source })),
                // The error would quote the value.
                Err(_) => problems.push(Problem::new("", "a value doesn't fit its type")),
            }
        }
        Err(source.render(&problems, |_| None))
    }

    /// Renders further problems of the file, with their lines.
    pub fn render(&self, problems: &[Problem]) -> Problems {
        self.source.render(problems, |_| None)
    }

    /// The line, from 1, of the value at a JSON pointer, or of the closest one that contains it.
    pub fn line(&self, pointer: &str) -> Option<usize> {
        let located = self.render(&[Problem::new(pointer, "")]);
        located.iter().find_map(|located| located.position).map(|(line, _)| line)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Pump {
        litres: u32,
        #[serde(default)]
        settings: serde_json::Map<String, serde_json::Value>,
    }

    fn read(text: &str) -> Result<(Pump, ForeignDocument), Problems> {
        ForeignDocument::read("pump.yml".into(), text)
    }

    #[test]
    fn a_file_is_read_as_its_type_and_lines_are_found_by_pointer() {
        let (pump, document) = read("litres: 3\nsettings:\n  a: $X\n").unwrap();
        assert_eq!((pump.litres, &pump.settings["a"]), (3, &"$X".into()), "references stay as they are");
        assert_eq!(document.line("/settings/a"), Some(3));
        assert_eq!(document.line("/settings/b"), Some(2));
    }

    #[test]
    fn all_mistakes_are_shown_and_only_values_that_the_type_knows() {
        let problems = read("litres: many\nlitre: 4\nsettings: { pin: 'se-cret' }\n").map(|(pump, _)| pump);
        let shown = problems.unwrap_err().to_string();
        assert!(shown.contains("pump.yml:1:9: /litres: `litres` must be"), "{shown}");
        assert!(
            shown.contains("/litre: `litre` is not a key here") && shown.contains("did you mean `litres`?")
        );
        let (_, document) = read("litres: 3\nsettings: { pin: 'se-cret' }\n").unwrap();
        let shown = document.render(&[Problem::new("/settings/pin", "is wrong")]).to_string();
        assert!(
            shown.starts_with("pump.yml:2:18: /settings/pin: is wrong") && !shown.contains("se-cret"),
            "{shown}"
        );
    }
}
