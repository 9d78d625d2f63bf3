//! Parses Prometheus text: the series and their values.

use std::collections::{BTreeMap, BTreeSet};

use crate::gateway::Gateway;

/// One series: its name, its labels, its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in Prometheus' notation.
    pub name: String,
    /// By name.
    pub labels: BTreeMap<String, String>,
    /// The last one.
    pub value: f64,
}

/// All series of a scrape.
#[derive(Debug, Clone, Default)]
pub struct Scrape {
    /// In the order of the text.
    pub series: Vec<Series>,
    /// The text itself.
    pub text: String,
}

impl Scrape {
    /// Scrapes `/metrics` of the ops port.
    ///
    /// # Panics
    /// If it doesn't answer with Prometheus text.
    pub async fn of(gateway: &Gateway) -> Self {
        let answer = gateway.ops().get("/metrics").await.expect("the operators' port answers");
        assert_eq!(answer.status, 200, "{answer:?}");
        let media_type = answer.header("content-type").unwrap_or_default();
        assert!(media_type.starts_with("text/plain; version=0.0.4"), "{media_type}");
        Self::parse(answer.text)
    }

    fn parse(text: String) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let series =
            samples.map(|line| sample(line).unwrap_or_else(|| panic!("no sample: {line}"))).collect();
        Scrape { series, text }
    }

    /// The sum of all series with this name and these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |series: &&Series| {
            labels.iter().all(|(label, value)| series.labels.get(*label).is_some_and(|is| is == value))
        };
        self.series.iter().filter(|series| series.name == name).filter(has).map(|series| series.value).sum()
    }

    /// The metrics with the names of all their labels. The parts of a histogram count as one metric.
    pub fn families(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in self.text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ").and_then(|line| line.split(' ').next()) {
                families.insert(family.to_owned(), BTreeSet::new());
            }
        }
        for series in &self.series {
            let bare = ["_bucket", "_sum", "_count"].iter().find_map(|part| series.name.strip_suffix(part));
            let family = bare.filter(|bare| families.contains_key(*bare)).unwrap_or(&series.name);
            let labels = families.get_mut(family).unwrap_or_else(|| panic!("{family} has a type"));
            labels.extend(series.labels.keys().filter(|label| *label != "le").cloned());
        }
        families
    }
}

/// Parses `name{label="value",...} number`. Values of our labels contain no quotes.
fn sample(line: &str) -> Option<Series> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let labels = labels.split_terminator("\",").map(|label| {
        let (label, value) = label.trim_end_matches('"').split_once("=\"")?;
        Some((label.to_owned(), value.to_owned()))
    });
    Some(Series { name: name.into(), labels: labels.collect::<Option<_>>()?, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_text_is_read_back() {
        let text = "# TYPE a_total counter\na_total{x=\"1\",y=\"z, w\"} 2\na_total{x=\"2\"} 3\n\
                    # TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 0.5\nh_count 1\n";
        let scrape = Scrape::parse(text.into());
        assert_eq!((scrape.sum("a_total", &[]), scrape.sum("a_total", &[("y", "z, w")])), (5.0, 2.0));
        let labels = |labels: &[&str]| labels.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let expected = [("a_total".into(), labels(&["x", "y"])), ("h".into(), labels(&[]))];
        assert_eq!(scrape.families(), BTreeMap::from(expected));
    }
}
