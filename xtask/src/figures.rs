//! `cargo xtask figures`: a number in a guide comes from somewhere, and is what it was there.
//!
//! A table of figures has a comment above it that says where they come from:
//!
//! | `<!-- figures: ... -->` | meaning | checked |
//! | --- | --- | --- |
//! | `file PATH` | a command wrote this file | here: the table says what the file says |
//! | `test PACKAGE NAME` | a test finds them again | by that test, against the table |
//! | `measured DATE, COMMAND` | measured then; no file was kept | only that it is said |
//! | `given` | settings, formulas, codes: nothing was measured | |
//!
//! Measurements take an hour and a quiet host, so the gate does not repeat them. New ones keep their file.

mod tables;

use std::fs;

use anyhow::{Context, bail, ensure};

use crate::command::root;
use tables::{Table, agrees, csv, number, quartiles};

const RECOVERIES: &str = "docs/experiments/pole/recovery/recoveries.csv";
const CRASHES: &str = "docs/experiments/pole/crashes.csv";
const POINTS: &str = "docs/experiments/nfd-l/points.csv";

/// From this many numbers on, a table is one of figures.
const SOME: usize = 3;

pub(crate) fn run() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    wrong.extend(recoveries()?);
    wrong.extend(interim()?);
    wrong.extend(crashes()?);
    wrong.extend(points()?);
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).context("list the guides")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        pages.extend(name.ends_with(".md").then(|| format!("docs/{name}")));
    }
    pages.sort();
    let mut marked = 0;
    for page in &pages {
        for table in tables::of(&read(page)?).iter().filter(|table| table.numbers() >= SOME) {
            marked += 1;
            if let Err(reason) = source(table.mark.as_deref()) {
                wrong.push(format!("{page}:{}: {reason}", table.line));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("figures: {marked} tables say where they come from, and the files agree");
    Ok(())
}

/// Whether the mark of a table is one, and what it names is there.
fn source(mark: Option<&str>) -> anyhow::Result<()> {
    let mark = mark.context(
        "a table of figures without `<!-- figures: ... -->` above it; xtask/src/figures.rs says what stands there",
    )?;
    let words: Vec<&str> = mark.split_whitespace().collect();
    let there = |path: String| ensure_exists(&path);
    match words[..] {
        ["given"] => Ok(()),
        ["file", path] => there(path.to_owned()),
        ["test", package, name] => there(format!("crates/{package}/tests/{name}.rs")),
        ["measured", date, _, ..] if is_date(date) => Ok(()),
        _ => bail!("`{mark}` does not say where figures come from"),
    }
}

fn ensure_exists(path: &str) -> anyhow::Result<()> {
    ensure!(root().join(path).is_file(), "there is no {path}");
    Ok(())
}

fn is_date(word: &str) -> bool {
    let form = |c: char| if c.is_ascii_digit() { '0' } else { c };
    word.chars().map(form).eq("0000-00-00,".chars())
}

/// Figures 8a, 8b and the open one: a row for each line of the file, in its order.
fn recoveries() -> anyhow::Result<Vec<String>> {
    let file = csv(&read(RECOVERIES)?);
    let page = "docs/experiments/pole/recovery/report.md";
    let tables = tables::of(&read(page)?);
    let rows: Vec<&Vec<String>> = rows_of_width(&tables, 9).collect();
    ensure!(
        rows.len() == file.len(),
        "{page} has {} rows, {RECOVERIES} {}",
        rows.len(),
        file.len()
    );
    let mut wrong = Vec::new();
    for (row, line) in rows.into_iter().zip(&file) {
        let [elected, served, led] =
            ["elected_ms", "served_ms", "led_ms"].map(|c| number(&line[c]));
        let steady = number(&line["steady_ms"]);
        let same = row[0] == line["deployment"] && row[1] == line["megabytes"];
        let same = same && row[2] == line["oracle"] && row[4] == line["elected"];
        // The report leaves out what was over before the election was known, and what it has reasons to doubt.
        let since = |at: f64, cell: &str| {
            cell == "not measured" || at > elected && agrees(cell, at - elected, 0.1)
        };
        if !(same && since(served, &row[5]) && since(led, &row[6]) && agrees(&row[8], steady, 0.0))
        {
            wrong.push(format!("{page}: `{}` is not what {RECOVERIES} says", row.join(" | ")));
        }
    }
    Ok(wrong)
}

/// The guide's table of the open figure, at 250 MB.
fn interim() -> anyhow::Result<Vec<String>> {
    let file = csv(&read(RECOVERIES)?);
    let lines =
        file.iter().filter(|l| l["deployment"] == "Deployment 1" && l["megabytes"] == "250");
    let page = "docs/openraft.md";
    let tables = tables::of(&read(page)?);
    let from_file =
        tables.iter().find(|t| t.mark.as_deref() == Some(&format!("file {RECOVERIES}")));
    let rows = &from_file.with_context(|| format!("{page} has no table of {RECOVERIES}"))?.rows;
    let mut wrong = Vec::new();
    for (row, line) in rows.iter().zip(lines) {
        let [elected, served] = ["elected_ms", "served_ms"].map(|c| number(&line[c]) / 1000.0);
        let steady = number(&line["steady_ms"]);
        let holds = agrees(&row[1], served - elected, 0.0001) && agrees(&row[2], served, 0.0001);
        if !(holds && agrees(&row[3], steady, 0.0)) {
            wrong.push(format!("{page}: `{}` is not what {RECOVERIES} says", row.join(" | ")));
        }
    }
    Ok(wrong)
}

/// Figures 4b, 7a and 7b: the means before and after.
fn crashes() -> anyhow::Result<Vec<String>> {
    let file = csv(&read(CRASHES)?);
    let page = "docs/experiments/pole/report.md";
    let tables = tables::of(&read(page)?);
    let mut wrong = Vec::new();
    for row in rows_of_width(&tables, 11) {
        let mean = |when: &str| {
            let line = file.iter().find(|line| {
                line["deployment"] == row[0]
                    && line["oracle"] == row[2]
                    && line["when"] == when
                    && line["place"] == "mean"
                    && has_shares(&row[1], &line["shares"])
            });
            line.map(|line| number(&line["measured_ms"]))
        };
        let holds = |cell: &str, when| mean(when).is_some_and(|found| agrees(cell, found, 0.0));
        if !(holds(&row[7], "after") && holds(&row[10], "before")) {
            wrong.push(format!("{page}: `{}` is not what {CRASHES} says", row.join(" | ")));
        }
    }
    Ok(wrong)
}

/// Whether `D1 50 %, D2 50 %` is `0.500/0.500/0.000`.
fn has_shares(text: &str, shares: &str) -> bool {
    shares.split('/').zip(1..).all(|(share, place)| {
        let place = format!("D{place} ");
        let told = text.split(", ").find_map(|part| part.strip_prefix(&place)).map_or(0.0, number);
        (number(share) * 100.0 - told).abs() < 1.0
    })
}

/// The quartiles beside the paper's Table 1.
fn points() -> anyhow::Result<Vec<String>> {
    let file = csv(&read(POINTS)?);
    let page = "docs/experiments/nfd-l/report.md";
    let tables = tables::of(&read(page)?);
    let mut wrong = Vec::new();
    for (name, metric) in
        [("detection time, ms", "detection_ms"), ("recovery detection, ms", "recovery_ms")]
    {
        let lines = file.iter().filter(|line| line["metric"] == metric);
        let found = quartiles(lines.map(|line| number(&line["value"])).collect());
        let row = rows_of_width(&tables, 5).find(|row| row[0] == name);
        let row = row.with_context(|| format!("{page} has no row `{name}`"))?;
        let cells = row[2].split(" / ").chain([row[3].as_str()]);
        if !cells.zip(found).all(|(cell, value)| agrees(cell, value, 0.0)) {
            wrong.push(format!("{page}: `{}` is not what {POINTS} says", row.join(" | ")));
        }
    }
    Ok(wrong)
}

fn rows_of_width(tables: &[Table], width: usize) -> impl Iterator<Item = &Vec<String>> {
    tables.iter().flat_map(|table| &table.rows).filter(move |row| row.len() == width)
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("could not read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_what_is_there() {
        assert!(source(Some("given")).is_ok());
        assert!(source(Some(&format!("file {POINTS}"))).is_ok());
        assert!(source(Some("measured 2026-11-16, `mandate lab failover`")).is_ok());
        for wrong in ["file nowhere.csv", "test mandate-sim nothing", "measured lately, by me", ""]
        {
            assert!(source(Some(wrong)).is_err(), "{wrong}");
        }
        assert!(source(None).is_err());
    }

    #[test]
    fn shares_are_compared_by_place() {
        assert!(has_shares("D1 50 %, D3 50 %", "0.500/0.000/0.500"));
        assert!(!has_shares("D1 50 %, D2 50 %", "0.500/0.000/0.500"));
    }
}
