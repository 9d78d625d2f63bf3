//! The results as a table and as JSON.

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use crate::{
    BenchError,
    machine::MachineInfo,
    rounds::{RawFigure, RunResults},
    rows::{Row, RowTarget, Unit, Verdict},
};

/// The columns with figures, which are aligned to the right.
const FIGURE_COLUMNS: [usize; 4] = [1, 4, 5, 6];

/// One row with its figures.
#[derive(Debug, Serialize)]
struct RowResult {
    row: &'static str,
    concurrency: Option<usize>,
    measured: &'static str,
    compared_with: &'static str,
    unit: Unit,
    median: f64,
    min: f64,
    max: f64,
    /// The figure of each round.
    rounds: Vec<f64>,
    #[serde(flatten)]
    target: Option<RowTarget>,
    verdict: Option<Verdict>,
}

impl RowResult {
    fn new(row: &Row, results: &RunResults) -> Result<Self, BenchError> {
        let rounds: Option<Vec<_>> = results.rounds.iter().map(|round| row.formula.value(round)).collect();
        let rounds = rounds.ok_or_else(|| format!("{}: a round has no figure", row.name))?;
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first().copied(), sorted.last().copied()) else {
            return Err("there is no round".into());
        };
        let median = median(&sorted);
        Ok(RowResult {
            row: row.name,
            concurrency: row.concurrency,
            measured: row.measured,
            compared_with: row.compared_with,
            unit: row.unit,
            median,
            min,
            max,
            rounds,
            target: row.target,
            verdict: row.target.map(|target| target.verdict(median)),
        })
    }

    fn cells(&self) -> [String; 8] {
        let dash = || "-".to_owned();
        let show = |figure| self.unit.show(figure);
        let bound = |bound: fn(&RowTarget) -> f64| self.target.as_ref().map_or_else(dash, |t| show(bound(t)));
        let verdict = match self.verdict {
            None => "-",
            Some(Verdict::Aim) => "aim",
            Some(Verdict::Must) => "must",
            Some(Verdict::Missed) => "missed",
        };
        [
            self.row.to_owned(),
            self.concurrency.map_or_else(dash, |concurrency| concurrency.to_string()),
            self.measured.to_owned(),
            self.compared_with.to_owned(),
            format!("{} ({:.2}..{:.2})", show(self.median), self.min, self.max),
            bound(|target| target.must),
            bound(|target| target.aim),
            verdict.to_owned(),
        ]
    }
}

/// The median of figures in ascending order: of an even number, the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: MachineInfo,
    /// Too short to be trusted.
    quick: bool,
    rows: Vec<RowResult>,
    raw: Vec<RawFigure>,
}

impl Report {
    pub(crate) fn new(rows: &[Row], results: RunResults, quick: bool) -> Result<Self, BenchError> {
        let machine = MachineInfo::collect()?;
        let rows = rows.iter().map(|row| RowResult::new(row, &results)).collect::<Result<_, _>>()?;
        Ok(Report { machine, quick, rows, raw: results.figures })
    }

    #[allow(clippy::print_stdout)] // standard output is where a command shows what it found
    pub(crate) fn print(&self) {
        let quick =
            if self.quick { ", quick: too short, and with too few tenants, to be trusted" } else { "" };
        println!("{}{quick}\n", self.machine.describe());
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "row",
            "c",
            "measured",
            "compared with",
            "median (min..max)",
            "must",
            "aim",
            "verdict",
        ]);
        for row in &self.rows {
            table.add_row(row.cells().into_iter().enumerate().map(|(column, text)| {
                let is_figure = FIGURE_COLUMNS.contains(&column);
                Cell::new(text).set_alignment(if is_figure {
                    CellAlignment::Right
                } else {
                    CellAlignment::Left
                })
            }));
        }
        table.lines().for_each(|line| println!("{}", line.trim_end()));
    }

    pub(crate) fn to_json(&self) -> Result<String, BenchError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
