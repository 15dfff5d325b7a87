//! Tables of Markdown, and files of values separated by commas.

use std::collections::BTreeMap;

pub(super) struct Table {
    /// Of its head, from 1.
    pub(super) line: usize,
    /// What `<!-- figures: ... -->` above it says.
    pub(super) mark: Option<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// How many cells are numbers, with a short unit perhaps.
    pub(super) fn numbers(&self) -> usize {
        let is_number = |cell: &&String| {
            let text = cell.trim_start_matches(['<', '~', ' ']);
            text.starts_with(|c: char| c.is_ascii_digit())
                && text.trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c)).len()
                    <= 12
        };
        self.rows.iter().flatten().filter(is_number).count()
    }
}

/// All tables of a page.
pub(super) fn of(markdown: &str) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut mark = None;
    let mut lines = markdown.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        if let Some(told) = line.strip_prefix("<!-- figures: ") {
            mark = told.strip_suffix(" -->").map(str::to_owned);
        } else if line.starts_with('|') {
            let mut rows = Vec::new();
            while let Some((row, _)) = lines.next_if(|(line, _)| line.starts_with('|')) {
                rows.push(cells(row));
            }
            // The line of dashes.
            rows.remove(0);
            tables.push(Table { line: number, mark: mark.take(), rows });
        } else if !line.is_empty() {
            mark = None;
        }
    }
    tables
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Each line by the names in the first. A field in quotes may contain commas.
pub(super) fn csv(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = text.lines().map(fields);
    let names = lines.next().unwrap_or_default();
    lines.map(|fields| names.iter().cloned().zip(fields).collect()).collect()
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("there is always one").push(c),
        }
    }
    fields
}

/// The number that a text begins with; not a number if there is none.
pub(super) fn number(text: &str) -> f64 {
    let digits = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.');
    digits.collect::<String>().parse().unwrap_or(f64::NAN)
}

/// Whether the cell is this value, rounded to as many decimals as the cell has. `slack` is what the value itself was rounded by.
pub(super) fn agrees(cell: &str, value: f64, slack: f64) -> bool {
    let digits: String = cell.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let half = 0.5 / 10f64.powi(i32::try_from(decimals).unwrap_or(0));
    (number(cell) - value).abs() <= half + slack + 1e-9
}

/// First quartile, median, third quartile, and the largest.
pub(super) fn quartiles(mut values: Vec<f64>) -> [f64; 4] {
    values.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75, 1.0].map(|share| {
        let place = (values.len().saturating_sub(1)) as f64 * share;
        let [below, above] =
            [place.floor(), place.ceil()].map(|at| values.get(at as usize).copied());
        let below = below.unwrap_or(f64::NAN);
        below + (above.unwrap_or(f64::NAN) - below) * place.fract()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_mark_right_above_it() {
        let page = "<!-- figures: given -->\ntext\n\n| a |\n| --- |\n| 1 |\n\n<!-- figures: file b -->\n\n| a | b |\n| --- | --- |\n| 1 ms | two |\n| <3 | 4,000 a second and so on |\n";
        let tables = of(page);
        assert_eq!(tables.len(), 2);
        assert_eq!((tables[0].line, tables[0].mark.as_deref()), (4, None));
        assert_eq!((tables[1].line, tables[1].mark.as_deref()), (10, Some("file b")));
        assert_eq!(tables[1].rows[0], ["1 ms", "two"]);
        assert_eq!(tables[1].numbers(), 2);
    }

    #[test]
    fn a_quoted_field_may_contain_commas() {
        let file = csv("a,b\n\"x, y\",2\n");
        assert_eq!((file[0]["a"].as_str(), number(&file[0]["b"])), ("x, y", 2.0));
    }

    #[test]
    fn a_cell_agrees_with_what_it_was_rounded_from() {
        assert!(agrees("66 ms", 66.4, 0.0) && agrees("2.70", 2.704, 0.0));
        assert!(!agrees("66", 66.6, 0.0) && !agrees("none", 1.0, 0.0));
    }

    #[test]
    fn quartiles_lie_between_neighbours() {
        assert_eq!(quartiles(vec![4.0, 1.0, 2.0, 3.0]), [1.75, 2.5, 3.25, 4.0]);
    }
}
