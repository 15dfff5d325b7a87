//! A strict reader of Prometheus' text format (version 0.0.4): what it does not allow is an error here. The
//! crates that read it pass over what is wrong, or have not been kept for years.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct Figures {
    kinds: BTreeMap<String, String>,
    helped: BTreeSet<String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Figures {
    /// The sample with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// All samples with this label among theirs.
    pub(crate) fn all(&self, name: &str, (key, value): (&str, &str)) -> impl Iterator<Item = f64> {
        let is_wanted = move |labels: &Labels| labels.get(key).is_some_and(|own| own == value);
        let samples = self.samples.iter();
        samples.filter(move |((own, labels), _)| own == name && is_wanted(labels)).map(|it| *it.1)
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&str> {
        self.kinds.get(name).map(String::as_str)
    }
}

pub(crate) fn parse(text: &str) -> Result<Figures, String> {
    let mut figures = Figures::default();
    if !text.ends_with('\n') {
        return Err("the last line does not end".into());
    }
    let mut current = String::new();
    for line in text.lines() {
        let parsed = match line.strip_prefix("# ") {
            Some(comment) => figures.comment(comment, &mut current),
            None => figures.sample(line, &current),
        };
        parsed.map_err(|error| format!("{error}: {line}"))?;
    }
    Ok(figures)
}

impl Figures {
    fn comment(&mut self, comment: &str, current: &mut String) -> Result<(), String> {
        let mut words = comment.splitn(3, ' ');
        let (Some(word), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            return Err("a comment that is neither HELP nor TYPE".into());
        };
        check_name(name, ":")?;
        match word {
            "HELP" if self.helped.insert(name.into()) && !rest.is_empty() => Ok(()),
            "TYPE" if ["counter", "gauge"].contains(&rest) => {
                *current = name.into();
                if rest == "counter" && !name.ends_with("_total") {
                    return Err("a counter's name ends with _total".into());
                }
                match self.kinds.insert(name.into(), rest.into()) {
                    None => Ok(()),
                    Some(_) => Err("a second TYPE".into()),
                }
            }
            _ => Err("a HELP or TYPE that is empty, unknown or there already".into()),
        }
    }

    fn sample(&mut self, line: &str, current: &str) -> Result<(), String> {
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let (name, rest) = line.split_at(end);
        check_name(name, ":")?;
        if name != current || !self.helped.contains(name) {
            return Err("not under its own HELP and TYPE".into());
        }
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Labels::new(), rest),
        };
        let value: f64 =
            value.strip_prefix(' ').ok_or("no space")?.parse().map_err(|_| "no number")?;
        match self.samples.insert((name.into(), labels), value) {
            None => Ok(()),
            Some(_) => Err("there already, with the same labels".into()),
        }
    }
}

/// What stands between the braces, and what is behind them.
fn labels(mut rest: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    loop {
        let (name, behind) = rest.split_once("=\"").ok_or("a label without a value")?;
        check_name(name, "")?;
        let (mut value, mut characters) = (String::new(), behind.chars());
        loop {
            match characters.next().ok_or("a value that does not end")? {
                '"' => break,
                '\\' => value.push(match characters.next() {
                    Some('n') => '\n',
                    Some(plain @ ('\\' | '"')) => plain,
                    _ => return Err("an escape that does not exist".into()),
                }),
                plain => value.push(plain),
            }
        }
        if labels.insert(name.into(), value).is_some() {
            return Err("the same label twice".into());
        }
        rest = characters.as_str();
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok((labels, rest.strip_prefix('}').ok_or("no closing brace")?)),
        }
    }
}

fn check_name(name: &str, also: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || also.contains(c);
    let is_good = name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_good && !name.is_empty() { Ok(()) } else { Err(format!("`{name}` is no name")) }
}

#[test]
fn the_reader_refuses_what_the_format_does_not_allow() {
    let head = "# HELP m_total Things.\n# TYPE m_total counter\n";
    let read = |lines: &str| parse(&format!("{head}{lines}"));
    let figures = read("m_total{a=\"x\\\"\\\\\\n\"} 1\nm_total 2.5\n").unwrap();
    assert_eq!(figures.value("m_total", &[("a", "x\"\\\n")]), Some(1.0));
    let wrong = [
        "m_total 1",
        "m_total{a=\"x} 1\n",
        "m_total{a=\"\\q\"} 1\n",
        "m_total one\n",
        "other 1\n",
        "m_total{a=\"1\",a=\"2\"} 1\n",
        "m_total 1\nm_total 1\n",
        "# TYPE m_total counter\n",
        "m_total{1=\"x\"} 1\n",
        "# HELP n N.\n# TYPE n counter\nn 1\n",
        "\n",
    ];
    for lines in wrong {
        assert!(read(lines).is_err(), "{lines}");
    }
}
