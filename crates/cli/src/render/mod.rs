//! Text for people: tables, bars, spans of time, colours.

pub mod bar;
pub mod palette;
pub mod span;
pub mod table;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns of a terminal `text` takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// `text` cut to `columns`, with a mark where something was left out.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        cut.push(character);
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// `text` broken between words into lines of at most `columns`; a word that is longer is cut.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, columns)),
        }
    }
    lines
}

/// `text` without the control characters that could move a terminal's cursor.
pub fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_with_a_mark() {
        assert_eq!(fit("gangway", 7), "gangway");
        assert_eq!(fit("gangway", 4), "gan…");
        assert_eq!(fit("gangway", 0), "");
        assert_eq!(width(&fit("日本語日本語", 6)), 5);
    }

    #[test]
    fn long_text_breaks_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("extraordinary", 5), ["extr…"]);
        assert!(wrap("  ", 5).is_empty());
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a [2Jb ");
    }
}
