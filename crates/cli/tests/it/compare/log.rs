//! What kube-scheduler writes down of what it sees and decides.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long any one line may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the file is looked at.
const PERIOD: Duration = Duration::from_millis(2);

/// A line: the sentence and the values that belong to it.
#[derive(Debug)]
pub struct Line {
    /// What happened.
    pub said: String,
    values: BTreeMap<String, String>,
}

impl Line {
    /// `I1118 06:58:08.1 1 file.go:64] "Add event for node" node="a"`; none for other kinds of lines.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("] \"")?;
        let (said, mut rest) = unquote(rest);
        let mut values = BTreeMap::new();
        while let Some((key, after)) = rest.split_once('=') {
            let value;
            (value, rest) = match after.strip_prefix('"') {
                Some(quoted) => unquote(quoted),
                None => after.split_once(' ').map_or((after.to_owned(), ""), |(v, r)| (v.to_owned(), r)),
            };
            values.insert(key.trim().to_owned(), value);
        }
        Some(Self { said, values })
    }

    /// The value of that name, or nothing.
    pub fn value(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }
}

/// The text up to the next quote, and what follows that.
fn unquote(text: &str) -> (String, &str) {
    let mut plain = String::new();
    let mut letters = text.char_indices();
    while let Some((index, letter)) = letters.next() {
        match letter {
            '"' => return (plain, &text[index + 1..]),
            '\\' => plain.extend(letters.next().map(|(_, escaped)| escaped)),
            _ => plain.push(letter),
        }
    }
    (plain, "")
}

/// The log while it grows.
pub struct Log {
    file: BufReader<File>,
    /// A line that is not written to its end.
    partial: String,
    /// What was read since somebody began to listen.
    lines: Vec<Line>,
}

impl Log {
    /// Opens it at its beginning.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self { file: BufReader::new(file), partial: String::new(), lines: Vec::new() })
    }

    /// What was said before does not matter any more.
    pub fn forget(&mut self) -> Result<()> {
        self.read()?;
        self.lines.clear();
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        while self.file.read_line(&mut self.partial)? > 0 {
            if self.partial.ends_with('\n') {
                self.lines.extend(Line::parse(self.partial.trim_end()));
                self.partial.clear();
            }
        }
        Ok(())
    }

    /// Reads on until something can be made of what was said.
    pub async fn wait<T>(&mut self, what: &str, find: impl Fn(&[Line]) -> Option<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            self.read()?;
            if let Some(found) = find(&self.lines) {
                return Ok(found);
            }
            if began.elapsed() > PATIENCE {
                let last = &self.lines[self.lines.len().saturating_sub(20)..];
                bail!("kube-scheduler did not say {what}; it said {last:#?}");
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = r#"I1118 06:58:08.8 1 schedule_one.go:984] "Plugin scored node for pod" pod="default/p1" node="b" score=300"#;
        let line = Line::parse(line).unwrap();
        assert_eq!(line.said, "Plugin scored node for pod");
        assert_eq!((line.value("pod"), line.value("node"), line.value("score")), ("default/p1", "b", "300"));
        let quoted = Line::parse(r#"x] "Unable to \"do\" it" err="0/1: a \"b\" c." n=1"#).unwrap();
        assert_eq!(
            (quoted.said.as_str(), quoted.value("err"), quoted.value("n")),
            ("Unable to \"do\" it", "0/1: a \"b\" c.", "1")
        );
    }
}
